"""Pretrained word vectors in the text format of word2vec and GloVe: a word and its vector per line."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.errors import WeftError
from weft.text.corpus import Corpus
from weft.text.tables import numbered_lines
from weft.text.vocabulary import RESERVED, Vocabulary


class WordVectors(NamedTuple):
    """The vectors of the tokens of a vocabulary that a file contains."""

    ids: np.ndarray[Any, np.dtype[np.int64]]  # (N,)
    values: np.ndarray[Any, np.dtype[np.float32]]  # (N, dimension)


def read_word_vectors(source: str, vocabulary: Vocabulary) -> WordVectors:
    """Read the vectors of the tokens of a vocabulary; other words are skipped."""
    found: dict[int, np.ndarray[Any, np.dtype[np.float32]]] = {}
    (document, *others) = Corpus.open(source).documents()
    if others:
        raise WeftError(f"{source} has {len(others) + 1} files", expected="one file of word vectors")
    size = 0
    for number, line in numbered_lines(document):
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            size = int(parts[1])  # the first line of word2vec: number of words, dimension
            continue
        size = size or len(parts) - 1
        word = " ".join(parts[:-size])  # GloVe's largest file has words with spaces
        if len(parts) <= size or not size:
            raise WeftError(
                f"{document.location}:{number} has {len(parts) - 1} values after the word",
                expected=f"{size or 'some'} in every line, the text format of word2vec and GloVe",
            )
        if word not in vocabulary or word in RESERVED or vocabulary.id(word) in found:
            continue
        try:
            vector = np.array(parts[-size:], dtype=np.float32)
        except ValueError as error:
            raise WeftError(f"{document.location}:{number}: {error}", expected="a word and its vector") from error
        if not np.isfinite(vector).all():
            raise WeftError(f"{document.location}:{number}: {word!r} has a value that is not finite")
        found[vocabulary.id(word)] = vector
    if not found:
        raise WeftError(
            f"{source} has none of the {len(vocabulary) - len(RESERVED):,} tokens of the data",
            expected="vectors of some of them",
            hint="`text.tokenizer=word`, and `text.lower` as in the file",
        )
    return WordVectors(np.array(list(found)), np.stack(list(found.values())))
