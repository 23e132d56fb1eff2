"""The subword tokenizer: byte-pair encoding over characters, trained by the `tokenizers` library.

A subword includes the space in front of it, so that joining is plain concatenation and lossless.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from weft.errors import WeftError
from weft.text.vocabulary import RESERVED, UNK

if TYPE_CHECKING:
    from types import ModuleType

# Merges stay within one match: a word or a run of punctuation with the space before it, a line end, other space.
# The lookahead leaves the last space of a run to the following word. No match depends on another line.
_UNIT = r" ?\w+| ?[^\w\s]+|\n|[^\S\n]+(?!\S)|[^\S\n]"


def _library() -> ModuleType:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise WeftError(
            "the subword tokenizer needs the package tokenizers, which is not installed",
            hint="pip install tokenizers, or `text.tokenizer=word`",
        ) from error
    module: ModuleType = tokenizers
    return module


@dataclass(frozen=True)
class SubwordTokenizer:
    """Byte-pair encoding: repeatedly merges the most frequent pair of adjacent subwords of the training text.

    `model` is the JSON of the `tokenizers` library. Characters that the training text lacks become "<unk>"; on all
    other text `join` is the exact inverse of `split`, white space included.
    """

    model: str = field(repr=False)
    name: ClassVar[str] = "subword"
    line_end: ClassVar[str] = "\n"

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> SubwordTokenizer:
        """Train on texts, up to a vocabulary of `size`, reserved tokens included. The result is deterministic."""
        if size <= len(RESERVED):
            raise WeftError(f"subword size is {size}", expected=f"more than the {len(RESERVED)} reserved tokens")
        library = _library()
        learner = _bare(library, library.models.BPE())
        trainer = library.trainers.BpeTrainer(vocab_size=size - len(RESERVED), show_progress=False, special_tokens=[])
        learner.train_from_iterator(_checked(texts), trainer)
        pieces = sorted(learner.get_vocab().items(), key=lambda item: item[1])
        if len(pieces) + len(RESERVED) > size:
            raise WeftError(
                f"subword size is {size}, but the text has {len(pieces)} different characters",
                expected=f"a size of {len(pieces) + len(RESERVED)} or more",
                hint=f"{2 * len(pieces)}, or `text.tokenizer=char`",
            )
        merges = [tuple(merge) for merge in json.loads(learner.to_str())["model"]["merges"]]
        vocabulary = {UNK: 0, **{piece: index + 1 for piece, index in pieces}}
        # Rebuilt so that "<unk>" is not a special token of the library, which would match it in the text itself.
        return cls(_bare(library, library.models.BPE(vocabulary, merges, unk_token=UNK)).to_str())

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            return _library().Tokenizer.from_str(self.model)
        except WeftError:
            raise
        except Exception as error:  # the library raises no narrower type
            raise WeftError(f"the stored subword model cannot be read: {error}") from error

    def pieces(self) -> list[str]:
        """All subwords, including "<unk>"."""
        return list(self._tokenizer.get_vocab())

    def split(self, text: str) -> list[str]:
        # A batch, because the library lets other threads run meanwhile; a long text takes it a second.
        (encoded,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        tokens: list[str] = encoded.tokens
        return tokens

    def join(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "model": self.model}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> SubwordTokenizer:
        model = data.get("model")
        if not isinstance(model, str):
            raise WeftError("a stored subword tokenizer has no model", expected="the JSON of the tokenizers library")
        tokenizer = cls(model)
        _ = tokenizer._tokenizer  # so that a damaged model is an error here, not at its first use
        return tokenizer


def _bare(library: ModuleType, model: Any) -> Any:
    """The library's tokenizer with our pre-tokenizer only: no normalization, no prefix, no special tokens."""
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(_UNIT), behavior="isolated")
    return tokenizer


def _checked(texts: Iterable[str]) -> Iterable[str]:
    empty = True
    for text in texts:
        empty = empty and not text
        yield text
    if empty:
        raise WeftError("there is no text to train a subword tokenizer on")
