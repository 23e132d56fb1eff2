"""Encoded text in shards: files of token ids with an index, read through memory maps, for text larger than memory.

    index.json         the text_field, the shards with their sizes and hashes, and how far the source has been encoded
    shard-00000.npy    a column of token ids, 16 or 32 bits each

Encoding streams. A shard is added to the index when it is complete, so encoding that was interrupted continues after
the last complete shard. The vocabulary, and the pieces of the subword tokenizer, come from a sample: the first
characters of the text.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.config import assignment
from weft.data.column import Array, JoinedValues, open_values, write_values
from weft.errors import WeftError
from weft.files import file_hash, write_atomically
from weft.text.config import TextConfig
from weft.text.corpus import Corpus, id_type, open_tokens, token_blocks
from weft.text.text_field import Text

INDEX = "index.json"
SHARDS_FORMAT = 3
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
    def text_field(self) -> Text:
        return Text.from_json(self.index["text_field"])

    def check_settings(self, config: TextConfig) -> None:
        """Refuses settings of the text that differ from those of the encoding."""
        encoded = self.index["asked"]["text"]
        different = {name: value for name, value in encoded.items() if getattr(config, name, value) != value}
        if different:
            given = ", ".join(f"text.{name} is {getattr(config, name)!r}" for name in different)
            raise WeftError(
                f"{given}; {self.folder} was encoded with {', '.join(map(repr, different.values()))}",
                expected="the same settings of the text",
                hint=" ".join(assignment(f"text.{name}", value) for name, value in different.items()),
            )

    @property
    def digest(self) -> str:
        """A hash of the content of all shards."""
        return hashlib.sha256("".join(one["sha256"] for one in self.index["shards"]).encode()).hexdigest()

    def tokens(self) -> JoinedValues:
        """The token ids, checked to be of the vocabulary."""
        size = len(self.text_field.vocabulary)
        return JoinedValues([open_tokens(self.folder / one["file"], size) for one in self.index["shards"]])


def is_shards(source: object) -> bool:
    """Whether a source is a folder that `write_shards` wrote."""
    return isinstance(source, str | Path) and (Path(source) / INDEX).is_file()


def open_shards(folder: str | Path) -> Shards:
    """Opens encoded text that is complete, with all files of the size that the index says."""
    folder = Path(folder)
    index = _read_index(folder)
    if not index["complete"]:
        raise WeftError(
            f"{folder} is not encoded completely",
            expected="a finished `weft data encode`",
            hint="the same command again",
        )
    shards = Shards(folder, index)
    for one in index["shards"]:
        file = folder / one["file"]
        try:
            complete = len(open_values(file)) == one["tokens"]
        except WeftError:
            complete = False
        if not complete:
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

    The vocabulary is built from the first `sample_characters` of the text.
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
        text_field = Text.fit(_sample(corpus, sample_characters), config)
        index = {
            "format": SHARDS_FORMAT,
            "asked": asked,
            "text_field": text_field.to_json(),
            "shards": [],
            "complete": False,
        }
        _write_index(folder, index)
    text_field = Text.from_json(index["text_field"])
    _encode(corpus, text_field, folder, index, shard_tokens)
    return open_shards(folder)


def _encode(corpus: Corpus, text_field: Text, folder: Path, index: dict[str, Any], shard_tokens: int) -> None:
    if index["complete"]:
        return
    width, done = id_type(len(text_field.vocabulary)), sum(one["tokens"] for one in index["shards"])
    skipped, due = 0, time.monotonic() + _REPORT_SECONDS
    held: list[Array] = []
    size = 0
    for block in token_blocks(corpus, text_field.normalizer, text_field.tokenizer):
        if skipped + len(block) <= done:  # in a complete shard
            skipped += len(block)
            continue
        ids = np.array(text_field.vocabulary.encode(block), dtype=width)
        ids, skipped = ids[max(0, done - skipped) :], max(skipped, done)
        while len(ids):
            taken = ids[: shard_tokens - size]
            held.append(taken)
            size, ids = size + len(taken), ids[len(taken) :]
            if size == shard_tokens:
                add_shard(folder, index, held)
                held, size = [], 0
        if time.monotonic() > due:
            total = sum(one["tokens"] for one in index["shards"]) + size
            _LOG.info("encoding %s: %s tokens, %s shards", corpus.name, f"{total:,}", len(index["shards"]))
            due = time.monotonic() + _REPORT_SECONDS
    if held:
        add_shard(folder, index, held)
    index["complete"] = True
    _write_index(folder, index)


def add_shard(folder: Path, index: dict[str, Any], held: list[Array]) -> None:
    file = folder / f"shard-{len(index['shards']):05d}.npy"
    count = write_values(file, held, held[0].dtype)
    with file.open("rb+") as written:
        os.fsync(written.fileno())  # before the index says that it is complete
    index["shards"].append({"file": file.name, "tokens": count, "sha256": file_hash(file)})
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
        index["text_field"], index["shards"], index["complete"], index["asked"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeftError(f"{folder / INDEX} cannot be read: {error}", expected="shards of `weft data encode`") from error
    return index


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    write_atomically(folder / INDEX, json.dumps(index, ensure_ascii=False).encode())
