"""Patterns of URLs, e-mail addresses, @mentions and #hashtags, which stay whole as tokens."""

from __future__ import annotations

import re

from weft.text.word_tokenizer import HAN

_BEGINS = r"(?:https?:/|www\.)"
_ADDRESS = re.compile(_BEGINS, re.IGNORECASE)

_IN_WORD = rf"[^\W{HAN}]"
# Chinese has no space after a URL, so its characters and punctuation end one.
_IN_ADDRESS = rf"[^\s(){HAN}\u3000-\u303f\uff00-\uffef]"
_LAST = rf"[^\s(){HAN}\u3000-\u303f\uff00-\uffef.,;:!?'\"\[\]{{}}<>«»“”‘’]"  # a mark at the end belongs to the sentence
_IN_BRACKETS = rf"\({_IN_ADDRESS}*\)"  # en.wikipedia.org/wiki/Weft_(textile)
WHOLE = re.compile(
    rf"""
    (?<!{_IN_WORD})
    (?: {_BEGINS}{_IN_ADDRESS}*(?:{_IN_BRACKETS}{_IN_ADDRESS}*)*(?:{_LAST}|{_IN_BRACKETS})
      | (?<![.+-])(?:{_IN_WORD}|[.+-]){{0,63}}{_IN_WORD}@(?:{_IN_WORD}|-){{1,63}}(?:\.(?:{_IN_WORD}|-){{1,63}})+(?<!-)
      | @{_IN_WORD}+
      | \#(?=\d*[^\W\d])(?:{_IN_WORD})+  # not #1, which is a number
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_url(word: str) -> bool:
    return _ADDRESS.match(word) is not None


def is_mention(word: str) -> bool:
    return len(word) > 1 and word[0] == "@"
