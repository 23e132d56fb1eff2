"""A fill-in-the-blank model behind a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft.config import Settings, setting
from weft.errors import WeftError
from weft.tasks.fill.blanks import BLANKS, Blanked
from weft.tasks.fill.predictor import BEAM_WIDTH, FillPredictor
from weft.tasks.service import MOST_ANSWERS, JsonRecord, Service, TextService
from weft.text.vocabulary import RESERVED

BLANK = "___"
MOST_MISSING = 20  # tokens
SEARCHED = 200_000  # characters of a text times beam width
_MASK = re.compile(r"<mask>|\[MASK\]")  # how other models write a blank


def has_blank(text: object) -> bool:
    """Whether a text has a blank in one of the ways to write it."""
    return isinstance(text, str) and bool(_MASK.search(text) or BLANKS.search(text))


@dataclass(frozen=True)
class FillOptions(Settings):
    """Options of a request."""

    n_best: int = setting(5, "how many answers", low=1, high=MOST_ANSWERS)
    tokens: int = setting(1, "how many tokens a blank stands for; 0: as many as it has underscores", low=0, high=20)
    width: int = setting(BEAM_WIDTH, "beam width where several tokens are missing", low=1, high=200)


def fill_service(model: FillPredictor) -> TextService:
    """The text service that fills blanks."""
    vocabulary = model.codec.vocabulary

    def predict(texts: Sequence[str], options: FillOptions) -> list[JsonRecord]:
        found = []
        for text in texts:
            blanked = _MASK.sub(BLANK, text)
            check_search(blanked, options)
            answers = model.fill(blanked, options.n_best, tokens=options.tokens, width=options.width)
            found.append({"text": text, "answers": [asdict(one) for one in answers], "unknown": model.unknown(blanked)})
        return found

    def to_mask(record: JsonRecord, parameters: Mapping[str, Any]) -> list[JsonRecord]:
        """[{score, token, token_str, sequence}]; of several blanks, the token of the first."""
        return [
            {
                "score": answer["probability"],
                "token": vocabulary.id(answer["fills"][0]),
                "token_str": answer["fills"][0],
                "sequence": answer["text"],
            }
            for answer in record["answers"]
        ]

    return TextService(
        "fill", FillOptions, predict, "fill-mask", {"top_k": "n_best", "targets": None}, to_mask, is_input=has_blank,
        growth=lambda options: options.n_best,
    )  # fmt: skip


def check_search(text: str, options: FillOptions) -> None:
    """Refuses what takes too long or too much memory: for each missing token but the first, a beam of whole texts."""
    missing = sum(Blanked.read(text).widths(options.tokens))
    if missing > MOST_MISSING:
        raise WeftError(f"{missing:,} tokens of the text are missing", expected=f"at most {MOST_MISSING}")
    beam = max(options.width, options.n_best)
    if missing > 1 and len(text) * beam > SEARCHED:
        raise WeftError(
            f"a text of {len(text):,} characters with {missing} missing tokens and a beam width of {beam}",
            expected=f"at most {SEARCHED // beam:,} characters",
        )


def serve_filler(model: FillPredictor) -> Service:
    """The service of a fill-in-the-blank model."""
    tokens = model.codec.vocabulary.tokens[len(RESERVED) :]
    words = [token for token in tokens if token.strip()][:4]
    join = model.codec.tokenizer.join
    example = f"{join(words[:2])} {BLANK} {join(words[2:])}"
    return Service((fill_service(model),), example=example, to_example=put_blank)


def put_blank(sentence: str) -> str:
    """The sentence with a blank in the place of its middle word.

    >>> put_blank("the cat sat on it")
    'the cat ___ on it'
    """
    words = sentence.split()
    words[len(words) // 2] = BLANK
    return " ".join(words)
