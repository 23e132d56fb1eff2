"""A translator behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft.config import Settings, setting
from weft.errors import WeftError
from weft.tasks.service import MOST_ANSWERS, JsonRecord, Service, TextService, languages_in
from weft.tasks.translate.language_detection import load_profiles
from weft.tasks.translate.predictor import LENGTH_PENALTY, TranslatePredictor
from weft.text.vocabulary import RESERVED

LONGEST_PREFIX = 1000
ATTENDED = 100  # how many weights a character may have: one for each token of its translation


@dataclass(frozen=True)
class TranslateOptions(Settings):
    """Options of a request."""

    beam: int = setting(5, "beam width; 1: greedy search", low=1, high=MOST_ANSWERS)
    length_penalty: float = setting(LENGTH_PENALTY, "larger values favour longer outputs", low=0, high=10)
    n_best: int = setting(1, "how many translations of each text", low=1, high=MOST_ANSWERS)
    copy_unknown: bool = setting(False, "replace an unknown word by the source token it attends to most")
    attention: bool = setting(False, "also return the attention weights")
    prefix: tuple[str, ...] = setting((), "target tokens that the translation begins with")


def serve_translator(model: TranslatePredictor) -> Service:
    """The service of a translator."""

    def predict(texts: Sequence[str], options: TranslateOptions) -> list[JsonRecord]:
        if len(options.prefix) > LONGEST_PREFIX:
            raise WeftError(f"the prefix has {len(options.prefix):,} tokens", expected=f"at most {LONGEST_PREFIX:,}")
        found = model.n_best(
            texts,
            options.n_best,
            beam=max(options.beam, options.n_best),
            length_penalty=options.length_penalty,
            copy_unknown=options.copy_unknown,
            attention=options.attention,
            prefix=options.prefix,
        )
        return [
            {"source": text, "translations": [asdict(one) for one in best], "unknown": model.unknown(text)}
            for text, best in zip(texts, found, strict=True)
        ]

    ignored = dict.fromkeys(
        ("src_lang", "tgt_lang", "clean_up_tokenization_spaces", "truncation", "generate_parameters")
    )
    service = TextService(
        "translate",
        TranslateOptions,
        predict,
        "translation",
        ignored,
        to_translation,
        listed=True,
        growth=lambda options: options.n_best * (ATTENDED if options.attention else 1),
    )
    tokens = [token for token in model.codec.source.vocabulary.tokens[len(RESERVED) :] if token.strip()][:5]
    example = model.codec.source.tokenizer.join(tokens).strip()
    return Service(
        (service,),
        languages=languages_in(model.run.path.name),
        profiles=load_profiles(model.run),
        example=example,
    )


def to_translation(record: JsonRecord, parameters: Mapping[str, Any]) -> JsonRecord:
    """{translation_text}."""
    best = record["translations"]
    return {"translation_text": best[0]["text"] if best else ""}
