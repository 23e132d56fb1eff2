"""From text to the numbers a model reads, and back; and a corpus made ready for training.

A codec is the three decisions that belong together: what is kept of a text, where it is cut, which tokens have
a number. It is stored with every model, so that a model reads later text exactly as it read the first.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.text.arguments import check_text
from weft.text.config import TextConfig
from weft.text.corpus import Corpus, count_tokens, encode_corpus, id_type, open_tokens
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.tokenizers import TOKENIZERS, Normalizer, Tokenizer, tokenizer_from_json
from weft.text.vocabulary import RESERVED, UNK, Vocabulary
from weft.text.word_tokenizer import WordTokenizer

SUBWORD_SIZE = 2000  # when no max_vocab_size is set
_CHUNK = 1 << 22  # tokens handled at a time, so that a corpus larger than memory passes through


@dataclass(frozen=True)
class Codec:
    """Text to ids and back."""

    normalizer: Normalizer
    tokenizer: Tokenizer
    vocabulary: Vocabulary

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.encode(self.tokenizer.split(self.normalizer(text)))

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.join(self.vocabulary.decode(ids))

    def unknown(self, text: str) -> list[str]:
        """The different tokens of the text that have no number, or characters where sub-words meet a strange one."""
        tokens = self.tokenizer.split(self.normalizer(check_text(text)))
        if UNK in tokens:
            return [one for one in dict.fromkeys(self.normalizer(text)) if UNK in self.tokenizer.split(one)]
        return self.vocabulary.unknown(tokens)

    def to_json(self) -> dict[str, Any]:
        return {
            "normalizer": self.normalizer.to_json(),
            "tokenizer": self.tokenizer.to_json(),
            "vocabulary": self.vocabulary.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Codec:
        return cls(
            Normalizer.from_json(data["normalizer"]),
            tokenizer_from_json(data["tokenizer"]),
            Vocabulary.from_json(data["vocabulary"]),
        )


class StreamingDecoder:
    """A text that grows token by token, and what of it can be shown already.

    How a token is written can depend on the next one (a space, a quotation mark), so the last one is held back.
    """

    LONGEST = 512  # tokens looked back at: what is older is settled

    def __init__(self, codec: Codec, ids: Sequence[int]) -> None:
        """Start after the text of `ids`, which counts as shown."""
        self.codec, self.ids = codec, list(ids)
        self.text = codec.decode(self.ids)
        self.shown = len(self.text)

    def push(self, token: int) -> str:
        """Add a token; gives the text that is settled by it."""
        self.ids.append(token)
        text = self.codec.decode(self.ids)
        settled = len(os.path.commonprefix([self.text, text]))  # noqa: RUF071  (of characters, as meant)
        if len(self.ids) > self.LONGEST:
            piece = text[self.shown :]
            self.ids = [token]
            self.text = self.codec.decode(self.ids)
            self.shown = len(self.text)
            return piece
        piece = text[self.shown : settled]
        self.text, self.shown = text, max(self.shown, settled)
        return piece

    def rest(self) -> str:
        """What has been held back."""
        piece, self.shown = self.text[self.shown :], len(self.text)
        return piece


def prepare_corpus(config: TextConfig, train: Corpus, dev: Corpus | None, folder: Path) -> Codec:
    """Encode the corpus into folder/train.bin and, for what is held out, folder/dev.bin.

    Held out is `dev`, or the last part of the corpus. The vocabulary is made from what is trained on alone.
    """
    normalizer = Normalizer(config.normalization, config.lower, config.letters_only)
    tokenizer = _tokenizer(config, normalizer, (line for one in train.documents() for line in one.lines()))
    everything = Vocabulary.build(count_tokens(train, normalizer, tokenizer))
    whole = folder / "whole.bin"
    encode_corpus(train, normalizer, tokenizer, everything, whole)
    tokens = open_tokens(whole, len(everything))[: config.limit or None]
    held_out = int(len(tokens) * config.holdout) if dev is None else 0
    training, rest = tokens[: len(tokens) - held_out], tokens[len(tokens) - held_out :]
    vocabulary = _vocabulary(config, tokenizer, _counts(training, everything))
    renumber = np.array(vocabulary.encode(everything), dtype=id_type(len(vocabulary)))
    _write(folder / "train.bin", training, renumber)
    if held_out:
        _write(folder / "dev.bin", rest, renumber)
    if dev is not None:
        encode_corpus(dev, normalizer, tokenizer, vocabulary, folder / "dev.bin")
    del tokens, training, rest  # the mapping must be gone before its file can be, on some systems
    whole.unlink()
    return Codec(normalizer, tokenizer, vocabulary)


def build_codec(config: TextConfig, texts: Sequence[str]) -> Codec:
    """The codec for many short texts, each an example of its own; the vocabulary is made from them."""
    normalizer = Normalizer(config.normalization, config.lower, config.letters_only)
    tokenizer = _tokenizer(config, normalizer, texts)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenizer.split(normalizer(text)))
    return Codec(normalizer, tokenizer, _vocabulary(config, tokenizer, counts))


def _tokenizer(config: TextConfig, normalizer: Normalizer, lines: Iterable[str]) -> Tokenizer:
    """The tokenizer of the wanted level; sub-words, and the print of words, are learned from the lines."""
    if config.tokenizer == SubwordTokenizer.name:
        return SubwordTokenizer.train(normalizer.lines(lines), config.max_vocab_size or SUBWORD_SIZE)
    if config.tokenizer == WordTokenizer.name:
        return WordTokenizer.train(normalizer.lines(lines))
    return TOKENIZERS[config.tokenizer].from_json({"name": config.tokenizer})


def _vocabulary(config: TextConfig, tokenizer: Tokenizer, counts: Mapping[str, int]) -> Vocabulary:
    if isinstance(tokenizer, SubwordTokenizer):
        # All pieces keep a number, seen alone or not: new text is cut into them too.
        pieces = [piece for piece in tokenizer.pieces() if piece not in RESERVED]
        pieces.sort(key=lambda piece: (-counts.get(piece, 0), piece))
        names = (*RESERVED, *pieces)
        return Vocabulary(names, tuple(counts.get(name, 0) for name in names))
    vocabulary = Vocabulary.build(counts, min_count=config.min_count, max_size=config.max_vocab_size or None)
    if len(vocabulary) == len(RESERVED):
        raise WeftError(
            f"no token of the text occurs {config.min_count} times", expected="some that do", hint="a lower min_count"
        )
    return vocabulary


def _counts(tokens: Sequence[Any] | np.ndarray[Any, Any], vocabulary: Vocabulary) -> dict[str, int]:
    totals = np.zeros(len(vocabulary), dtype=np.int64)
    for chunk in _chunks(tokens):
        totals += np.bincount(chunk, minlength=len(vocabulary))
    return {token: int(count) for token, count in zip(vocabulary, totals, strict=True) if count}


def _write(path: Path, tokens: Any, renumber: np.ndarray[Any, Any]) -> None:
    with path.open("wb") as file:
        for chunk in _chunks(tokens):
            file.write(renumber[chunk].tobytes())


def _chunks(tokens: Any) -> Iterator[np.ndarray[Any, Any]]:
    for begin in range(0, len(tokens), _CHUNK):
        yield tokens[begin : begin + _CHUNK]
