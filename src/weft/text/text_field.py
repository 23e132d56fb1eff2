"""Text to token ids and back, and the encoding of a corpus for training.

A `Text` combines a normalizer, a tokenizer and a vocabulary. It is stored with every model, so that new text is
encoded exactly as the training text was.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.column import write_values
from weft.data.field import Field
from weft.errors import WeftError
from weft.text.arguments import check_text
from weft.text.config import TextConfig
from weft.text.corpus import Corpus, count_tokens, encode_corpus, id_type, open_tokens
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.tokenizers import TOKENIZERS, Normalizer, Tokenizer, tokenizer_from_json
from weft.text.vocabulary import EOS, RESERVED, UNK, Vocabulary
from weft.text.word_tokenizer import WhitespaceTokenizer, WordTokenizer

SUBWORD_SIZE = 2000  # vocabulary size of the subword tokenizer if max_vocab_size is 0
_LOG = logging.getLogger("weft")
_CHUNK = 1 << 22  # tokens processed at a time, so that the corpus need not fit into memory


@dataclass(frozen=True)
class Text(Field[str]):
    """The field of a text: a normalizer, a tokenizer and a vocabulary, which turn it into token ids and back."""

    normalizer: Normalizer
    tokenizer: Tokenizer
    vocabulary: Vocabulary

    @classmethod
    def fit(cls, values: Iterable[str], settings: TextConfig | None = None) -> Text:
        """The text_field of short texts, with the vocabulary of these texts."""
        texts, config = list(values), settings or TextConfig()
        normalizer = Normalizer(config.normalization, config.lower, config.letters_only)
        tokenizer = _tokenizer(config, normalizer, texts)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenizer.split(normalizer(text)))
        return cls(normalizer, tokenizer, _vocabulary(config, tokenizer, counts))

    def names(self, value: str) -> tuple[str, ...]:
        """The tokens of a text."""
        return tuple(self.tokenizer.split(self.normalizer(value)))

    def encode(self, value: str) -> list[int]:
        """The token ids of a text; unknown tokens become the id of "<unk>"."""
        return self.vocabulary.encode(self.names(value))

    def decode(self, row: Iterable[int]) -> str:
        """The text of token ids."""
        return self.tokenizer.join(self.vocabulary.decode(row))

    def parse(self, text: str) -> str:
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def unknown(self, text: str) -> list[str]:
        """The different tokens of the text that the vocabulary lacks; for subwords, the unknown characters."""
        tokens = self.tokenizer.split(self.normalizer(check_text(text)))
        if isinstance(self.tokenizer, SubwordTokenizer) and UNK in tokens:
            return [one for one in dict.fromkeys(self.normalizer(text)) if UNK in self.tokenizer.split(one)]
        return self.vocabulary.unknown(tokens)

    def to_json(self) -> dict[str, Any]:
        return {
            "normalizer": self.normalizer.to_json(),
            "tokenizer": self.tokenizer.to_json(),
            "vocabulary": self.vocabulary.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Text:
        return cls(
            Normalizer.from_json(data["normalizer"]),
            tokenizer_from_json(data["tokenizer"]),
            Vocabulary.from_json(data["vocabulary"]),
        )


class StreamingDecoder:
    """Decodes a stream of tokens to text, one token at a time.

    How a token is written can depend on the next one (a space, a quotation mark), so the text of the last token is
    held back until it is final.
    """

    CONTEXT = 512  # tokens that are decoded together; older ones are final

    def __init__(self, text_field: Text, ids: Sequence[int]) -> None:
        """Start after `ids` (a prompt), whose text is not returned."""
        self.text_field, self.ids = text_field, list(ids)
        self.text = text_field.decode(self.ids)
        self.shown = len(self.text)

    def push(self, token: int) -> str:
        """Add a token and return the text that has become final."""
        self.ids.append(token)
        text = self.text_field.decode(self.ids)
        same = text.startswith(self.text)  # nearly always, and found quickly
        final = len(self.text) if same else len(os.path.commonprefix([self.text, text]))  # noqa: RUF071  (of characters)
        if len(self.ids) > self.CONTEXT:
            piece = text[self.shown :]
            self.ids = [token]
            self.text = self.text_field.decode(self.ids)
            self.shown = len(self.text)
            return piece
        piece = text[self.shown : final]
        self.text, self.shown = text, max(self.shown, final)
        return piece

    def rest(self) -> str:
        """Return the text that is still held back."""
        piece, self.shown = self.text[self.shown :], len(self.text)
        return piece


def store_corpus(
    config: TextConfig, train: Corpus, dev: Corpus | None, folder: Path, known: Text | None = None
) -> tuple[Text, dict[str, int]]:
    """Encodes a corpus into the columns train.tokens and, of its held-out part, dev.tokens.

    Args:
        config: normalization, tokenizer, vocabulary and fraction to hold out.
        train: the training corpus.
        dev: the held-out corpus; None: the end of the training corpus is held out.
        folder: where the columns are written.
        known: a text_field to keep; None: it is built, its vocabulary from the training part only.

    Returns:
        The text_field, and the counts of the tokens of the training corpus that a known one lacks.
    """
    if known is None:
        normalizer = Normalizer(config.normalization, config.lower, config.letters_only)
        tokenizer = _tokenizer(config, normalizer, (line for one in train.documents() for line in one.lines()))
    else:
        normalizer, tokenizer = known.normalizer, known.tokenizer
    counts = count_tokens(train, normalizer, tokenizer)
    full = Vocabulary.build(counts) if known is None else known.vocabulary
    if known is None and isinstance(tokenizer, WhitespaceTokenizer):
        _report_reserved(counts)
    whole = folder / "whole.npy"
    encode_corpus(train, normalizer, tokenizer, full, whole)
    tokens = open_tokens(whole, len(full))[: config.limit or None]
    held_out = int(len(tokens) * config.holdout) if dev is None else 0
    training, rest = tokens[: len(tokens) - held_out], tokens[len(tokens) - held_out :]
    vocabulary = _vocabulary(config, tokenizer, _counts(training, full)) if known is None else full
    width = id_type(len(vocabulary))
    id_map = np.array(vocabulary.encode(full), dtype=width)
    for part, ids in (("train", training), ("dev", rest)):
        if len(ids) or part == "train":
            write_values(folder / f"{part}.tokens.npy", (id_map[chunk] for chunk in _chunks(ids)), width)
    if dev is not None:
        encode_corpus(dev, normalizer, tokenizer, vocabulary, folder / "dev.tokens.npy")
    del tokens, training, rest  # Windows cannot delete a file that is still mapped
    whole.unlink()
    missing = {token: count for token, count in counts.items() if token not in vocabulary or token == UNK}
    return known or Text(normalizer, tokenizer, vocabulary), missing


def _report_reserved(counts: Mapping[str, int]) -> None:
    """Logs which reserved tokens pre-tokenized text contains. "<eos>" is left out: every line end is one."""
    found = [f"{token} ({counts[token]:,})" for token in RESERVED if token != EOS and counts.get(token)]
    if found:
        _LOG.info("reserved tokens in the text: %s; they are those of the vocabulary", ", ".join(found))


def _tokenizer(config: TextConfig, normalizer: Normalizer, lines: Iterable[str]) -> Tokenizer:
    """The configured tokenizer; subwords, and the spacing of the word tokenizer, are trained on the lines."""
    if config.tokenizer == SubwordTokenizer.name:
        return SubwordTokenizer.train(normalizer.lines(lines), config.max_vocab_size or SUBWORD_SIZE)
    if config.tokenizer == WordTokenizer.name:
        return WordTokenizer.train(normalizer.lines(lines))
    return TOKENIZERS[config.tokenizer].from_json({"name": config.tokenizer})


def _vocabulary(config: TextConfig, tokenizer: Tokenizer, counts: Mapping[str, int]) -> Vocabulary:
    if isinstance(tokenizer, SubwordTokenizer):
        # All pieces keep an id, even those that occur only inside larger ones: new text may contain them.
        pieces = [piece for piece in tokenizer.pieces() if piece not in RESERVED]
        pieces.sort(key=lambda piece: (-counts.get(piece, 0), piece))
        names = (*RESERVED, *pieces)
        return Vocabulary(names, tuple(counts.get(name, 0) for name in names))
    vocabulary = Vocabulary.build(counts, min_count=config.min_count, max_size=config.max_vocab_size or None)
    if len(vocabulary) == len(RESERVED):
        raise WeftError(
            f"no token of the text occurs {config.min_count} times",
            expected="at least one that does",
            hint="`text.min_count=1`",
        )
    return vocabulary


def _counts(tokens: Sequence[Any] | np.ndarray[Any, Any], vocabulary: Vocabulary) -> dict[str, int]:
    totals = np.zeros(len(vocabulary), dtype=np.int64)
    for chunk in _chunks(tokens):
        totals += np.bincount(chunk, minlength=len(vocabulary))
    return {token: int(count) for token, count in zip(vocabulary, totals, strict=True) if count}


def _chunks(tokens: Any) -> Iterator[np.ndarray[Any, Any]]:
    for begin in range(0, len(tokens), _CHUNK):
        yield tokens[begin : begin + _CHUNK]
