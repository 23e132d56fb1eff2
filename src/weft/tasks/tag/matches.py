"""Matches of a text without spaces with the words of the training text, as a feature of its characters.

A character may begin a match, end one, or stand inside one; the feature has the length of the longest match of each
kind. All words of a training sentence would match, unlike those of new text. So a word that occurs in no other training
sentence does not match there: each sentence has the matches that it would have if it were new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

LONGEST_MATCH = 20  # characters of the longest words that can be looked up


def number_of_matches(longest: int) -> int:
    """The number of different ids of `match_ids`."""
    return longest**3


def match_ids(characters: Sequence[str], words: Container[str], longest: int, hidden: Container[str] = ()) -> list[int]:
    """The matches of each character, as one id.

    Args:
        characters: the text.
        words: the words to find in it. Those of one character are not looked up.
        longest: the number of characters of the longest words that are looked up.
        hidden: words that do not match.

    >>> match_ids("天安门去", {"天安门", "安门"}, 3)  # begins 3; begins 2, inside 3; ends 3; none
    [18, 11, 6, 0]
    """
    size = len(characters)
    begins, ends, inside = [0] * size, [0] * size, [0] * size
    for length in range(2, longest + 1):  # longer matches replace shorter ones
        for start in range(size - length + 1):
            end = start + length
            word = "".join(characters[start:end])
            if word in words and word not in hidden:
                begins[start] = ends[end - 1] = length - 1
                inside[start + 1 : end - 1] = [length - 1] * (length - 2)
    kinds = zip(begins, ends, inside, strict=True)
    return [(begin * longest + end) * longest + within for begin, end, within in kinds]


def own_words(sentences: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """The words of each sentence that occur in no other sentence.

    >>> [sorted(words) for words in own_words([["a", "b", "b"], ["a", "c"]])]
    [['b'], ['c']]
    """
    listed = [frozenset(sentence) for sentence in sentences]
    counts = Counter(word for sentence in listed for word in sentence)
    return [frozenset(word for word in sentence if counts[word] == 1) for sentence in listed]
