"""Encoded text in shards: files of token ids with an index, read through memory maps, for text larger than memory.

    index.json         the codec, the shards with their sizes and hashes, and how far the source has been encoded
    shard-00000.bin    token ids, 16 or 32 bits each

Encoding streams. A shard is added to the index when it is complete, so encoding that was interrupted continues after
the last complete shard. The vocabulary, and the pieces of the subword tokenizer, come from a sample: the first
characters of the text.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.files import write_atomically
from weft.text.codec import Codec, build_codec
from weft.text.config import TextConfig
from weft.text.corpus import Corpus, id_type, open_tokens, token_blocks

INDEX = "index.json"
SHARDS_FORMAT = 1
SHARD_TOKENS = 1 << 26
SAMPLE_CHARACTERS = 20_000_000
_REPORT_SECONDS = 5.0
_LOG = logging.getLogger("weft")


@dataclass(frozen=True)
class Shards:
    """Encoded text that has been opened."""

    folder: Path
    index: dict[str, Any]

    @property
    def codec(self) -> Codec:
        return Codec.from_json(self.index["codec"])

    def check_settings(self, config: TextConfig) -> None:
        """Refuses settings of the text that differ from those of the encoding.

        Raises:
            WeftError: it names the settings that differ.
        """
        encoded = self.index["asked"]["text"]
        different = {name: value for name, value in encoded.items() if getattr(config, name, value) != value}
        if different:
            given = ", ".join(f"text.{name} is {getattr(config, name)!r}" for name in different)
            raise WeftError(
                f"{given}; {self.folder} was encoded with {', '.join(map(repr, different.values()))}",
                expected="the same settings of the text",
                hint=" ".join(f"`text.{name}={_written(value)}`" for name, value in different.items()),
            )

    @property
    def digest(self) -> str:
        """A hash of the content of all shards."""
        return hashlib.sha256("".join(one["sha256"] for one in self.index["shards"]).encode()).hexdigest()

    def tokens(self) -> ShardedTokens:
        """The token ids, checked to be of the vocabulary."""
        size = len(self.codec.vocabulary)
        return ShardedTokens([open_tokens(self.folder / one["file"], size) for one in self.index["shards"]])


def _written(value: object) -> str:
    """A setting's value as `section.key=value` takes it."""
    return value if isinstance(value, str) else json.dumps(value)


class ShardedTokens:
    """The tokens of several arrays as one: supports len() and slices, which are copied into memory.

    >>> tokens = ShardedTokens([np.array([1, 2]), np.array([3, 4, 5])])
    >>> len(tokens), tokens[1:4].tolist(), len(tokens.part(2, 5))
    (5, [2, 3, 4], 3)
    """

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]], begin: int = 0, end: int | None = None) -> None:
        self._arrays, self._begin = arrays, begin
        self._end = sum(map(len, arrays)) if end is None else end

    @cached_property
    def _ends(self) -> np.ndarray[Any, Any]:
        return np.cumsum([len(array) for array in self._arrays])

    def __len__(self) -> int:
        return self._end - self._begin

    def part(self, begin: int, end: int) -> ShardedTokens:
        """The tokens from `begin` to `end`, not copied."""
        return ShardedTokens(self._arrays, self._begin + begin, self._begin + end)

    def __getitem__(self, where: slice) -> np.ndarray[Any, Any]:
        begin, end, step = where.indices(len(self))
        assert step == 1, "only contiguous slices"
        begin, end = begin + self._begin, max(begin, end) + self._begin
        pieces = []
        number = int(np.searchsorted(self._ends, begin, side="right"))
        while begin < end:
            start = int(self._ends[number - 1]) if number else 0
            piece = self._arrays[number][begin - start : end - start]
            pieces.append(piece)
            begin, number = begin + len(piece), number + 1
        if len(pieces) == 1:
            return np.array(pieces[0])
        return np.concatenate(pieces) if pieces else np.array(self._arrays[0][:0])


def is_shards(source: object) -> bool:
    """Whether a source is a folder that `write_shards` wrote."""
    return isinstance(source, str | Path) and (Path(source) / INDEX).is_file()


def open_shards(folder: str | Path) -> Shards:
    """Opens encoded text.

    Raises:
        WeftError: the folder is not complete, or a file is missing or of another size than the index says.
    """
    folder = Path(folder)
    index = _read_index(folder)
    if not index["complete"]:
        raise WeftError(
            f"{folder} is not encoded completely",
            expected="a finished `weft data encode`",
            hint="the same command again",
        )
    shards = Shards(folder, index)
    width = np.dtype(id_type(len(shards.codec.vocabulary))).itemsize
    for one in index["shards"]:
        file = folder / one["file"]
        if not file.is_file() or file.stat().st_size != width * one["tokens"]:
            raise WeftError(
                f"{file} is missing or cut short", expected=f"{one['tokens']:,} tokens", hint="encode again"
            )
    return shards


def write_shards(
    corpus: Corpus,
    config: TextConfig,
    folder: Path,
    *,
    shard_tokens: int = SHARD_TOKENS,
    sample_characters: int = SAMPLE_CHARACTERS,
) -> Shards:
    """Encodes a corpus into shards; continues where an earlier call was interrupted.

    Args:
        corpus: the text.
        config: normalization, tokenizer, vocabulary.
        folder: where the shards are written.
        shard_tokens: tokens in each shard but the last.
        sample_characters: the first characters of the text, from which the vocabulary is built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = {"source": corpus.name, "shard_tokens": shard_tokens, "sample_characters": sample_characters}
    asked["text"] = {
        name: value for name, value in vars(config).items() if name not in ("limit", "holdout", "column", "strict")
    }
    if (folder / INDEX).exists():
        index = _read_index(folder)
        if index["asked"] != json.loads(json.dumps(asked)):
            raise WeftError(f"{folder} was encoded from other text or settings", expected="a new folder")
    else:
        codec = build_codec(config, list(_sample(corpus, sample_characters)))
        index = {"format": SHARDS_FORMAT, "asked": asked, "codec": codec.to_json(), "shards": [], "complete": False}
        _write_index(folder, index)
    codec = Codec.from_json(index["codec"])
    _encode(corpus, codec, folder, index, shard_tokens)
    return open_shards(folder)


def _encode(corpus: Corpus, codec: Codec, folder: Path, index: dict[str, Any], shard_tokens: int) -> None:
    if index["complete"]:
        return
    width, done = id_type(len(codec.vocabulary)), sum(one["tokens"] for one in index["shards"])
    skipped, due = 0, time.monotonic() + _REPORT_SECONDS
    held: list[np.ndarray[Any, Any]] = []
    size = 0
    for block in token_blocks(corpus, codec.normalizer, codec.tokenizer):
        if skipped + len(block) <= done:  # in a complete shard
            skipped += len(block)
            continue
        ids = np.array(codec.vocabulary.encode(block), dtype=width)
        ids, skipped = ids[max(0, done - skipped) :], max(skipped, done)
        while len(ids):
            taken = ids[: shard_tokens - size]
            held.append(taken)
            size, ids = size + len(taken), ids[len(taken) :]
            if size == shard_tokens:
                _add_shard(folder, index, held)
                held, size = [], 0
        if time.monotonic() > due:
            total = sum(one["tokens"] for one in index["shards"]) + size
            _LOG.info("encoding %s: %s tokens, %s shards", corpus.name, f"{total:,}", len(index["shards"]))
            due = time.monotonic() + _REPORT_SECONDS
    if held:
        _add_shard(folder, index, held)
    index["complete"] = True
    _write_index(folder, index)


def _add_shard(folder: Path, index: dict[str, Any], held: list[np.ndarray[Any, Any]]) -> None:
    ids = np.concatenate(held)
    file, content = f"shard-{len(index['shards']):05d}.bin", ids.tobytes()
    write_atomically(folder / file, content)
    index["shards"].append({"file": file, "tokens": len(ids), "sha256": hashlib.sha256(content).hexdigest()})
    _write_index(folder, index)


def _sample(corpus: Corpus, characters: int) -> Iterator[str]:
    for document in corpus.documents():
        for line in document.lines():
            if characters <= 0:
                return
            characters -= len(line)
            yield line


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if index["format"] != SHARDS_FORMAT:
            raise ValueError(f"it has format {index['format']}")
        index["codec"], index["shards"], index["complete"], index["asked"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeftError(f"{folder / INDEX} cannot be read: {error}", expected="shards of `weft data encode`") from error
    return index


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    write_atomically(folder / INDEX, json.dumps(index, ensure_ascii=False).encode())
