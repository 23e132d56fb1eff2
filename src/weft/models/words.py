"""What a tagger reads: words with the characters they are spelled with, or the characters of a text with their pairs.

Each becomes a row of numbers for every place. A word seen but a few times is now and then read as unknown while
training, so that the model learns what to do with words that it has never seen: look at their spelling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.buckets import Numbers, Padded, Ragged, take
from weft.config.tag import TagModelConfig
from weft.engine import NO_DROPOUT, Dropout, Embedded, Part, word_dropout
from weft.errors import WeftError
from weft.recurrent import make_stack
from weft.text.lexicon import Lexicon, WordLexicon


class Words(NamedTuple):
    """Sentences of words. A word that comes twice in a batch is spelled once."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    shapes: Tensor  # (B, T)
    forms: Tensor  # (B, T): the row of the spelling
    spelling: Padded  # (U, C)


class Characters(NamedTuple):
    """Sentences of characters, and the pairs that each one ends and begins."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    pairs: Tensor  # (B, T + 1): place t ends pair t and begins pair t + 1


Inputs = Words | Characters


def collate(columns: Mapping[str, Ragged], rows: Numbers) -> Inputs:
    """Some sentences of the columns that a lexicon encodes."""
    ids, lengths = take(columns["words"], rows)
    if "pairs" in columns:
        return Characters(ids, lengths, take(columns["pairs"], rows).ids)
    forms = take(columns["forms"], rows).ids
    inside = torch.arange(forms.shape[1]) < lengths[:, None]
    different, places = np.unique(forms[inside].numpy(), return_inverse=True)
    forms[inside] = torch.from_numpy(places)
    return Words(ids, lengths, take(columns["shapes"], rows).ids, forms, take(columns["spelling"], different))


class WordReader(nn.Module):
    """(B, T) words to (B, T, embedding + shapes + 2 character_hidden): the word, how it looks, how it is spelled.

    The spelling is the last state of a recurrent layer in each direction: what the word ends with, and begins with.
    """

    def __init__(self, lexicon: WordLexicon, config: TagModelConfig) -> None:
        super().__init__()
        if not config.embedding and not config.characters:
            raise WeftError("model.embedding and model.characters are both 0", expected="one of them above 0")
        self.words = Embedding(lexicon.words.counts, config.embedding, config.forget) if config.embedding else None
        self.shapes = Embedding(lexicon.shapes.counts, config.shapes, config.forget) if config.shapes else None
        self.characters = self.spell = None
        self.output_size = config.embedding + config.shapes
        if config.characters:
            self.characters = Embedding(lexicon.characters.counts, config.characters, config.forget)
            self.spell = make_stack(config.cell, config.characters, config.character_hidden, bidirectional=True)
            self.output_size += self.spell.output_size

    def forward(self, inputs: Words, drop: Dropout = NO_DROPOUT) -> Embedded:
        parts = [] if self.words is None else [self.words.part(inputs.ids)]
        if self.shapes is not None:
            parts.append(self.shapes.part(inputs.shapes))
        if self.characters is not None and self.spell is not None:
            _, (last,) = self.spell(self.characters(inputs.spelling.ids), lengths=inputs.spelling.lengths)
            parts += [Part(inputs.forms, side.h) for side in last]  # (U, C) each
        return Embedded(parts, drop)


class CharacterReader(nn.Module):
    """(B, T) characters to (B, T, embedding + 2 pairs): a row for the character and for the pairs it is in."""

    def __init__(self, lexicon: Lexicon, config: TagModelConfig) -> None:
        super().__init__()
        assert not isinstance(lexicon, WordLexicon)
        if not config.embedding and not config.pairs:
            raise WeftError("model.embedding and model.pairs are both 0", expected="one of them above 0")
        self.words = Embedding(lexicon.words.counts, config.embedding, config.forget) if config.embedding else None
        self.pairs = Embedding(lexicon.pairs.counts, config.pairs, config.forget) if config.pairs else None
        self.output_size = config.embedding + 2 * config.pairs

    def forward(self, inputs: Characters, drop: Dropout = NO_DROPOUT) -> Embedded:
        parts = [] if self.words is None else [self.words.part(inputs.ids)]
        if self.pairs is not None:
            ids, table, chances = self.pairs.part(inputs.pairs)
            pairs = word_dropout(ids.to(table.device), chances)  # (B, T + 1): forgotten at both places or at none
            parts += [Part(pairs[:, :-1], table), Part(pairs[:, 1:], table)]
        return Embedded(parts, drop)


def make_reader(lexicon: Lexicon, config: TagModelConfig) -> WordReader | CharacterReader:
    return WordReader(lexicon, config) if isinstance(lexicon, WordLexicon) else CharacterReader(lexicon, config)


class Embedding(nn.Module):
    """A row for each id. While training, an id seen n times is read as 0, unknown, with the chance d / (d + n)."""

    chance: Tensor

    def __init__(self, counts: Sequence[int], size: int, forget: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(counts), size))
        nn.init.normal_(self.weight, std=size**-0.5)
        chance = forget / (forget + torch.tensor(counts, dtype=torch.float32)) if forget else torch.zeros(len(counts))
        self.register_buffer("chance", chance, persistent=False)

    def part(self, ids: Tensor) -> Part:
        return Part(ids, self.weight, self.chance if self.training else None)

    def forward(self, ids: Tensor) -> Embedded:
        return Embedded([self.part(ids)])
