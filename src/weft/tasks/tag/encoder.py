"""Token representations of the tagger: words with their spelling, or characters with character bigrams.

Every token becomes a vector. In training a rare word is sometimes replaced by the unknown word (word dropout), so the
model learns to rely on the spelling of words that it has never seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.data.buckets import Padded, take
from weft.data.column import Column, IntArray
from weft.engine import NO_DROPOUT, Dropout, Embedded, Part, drop_ids
from weft.errors import WeftError
from weft.nn import make_stack
from weft.nn.channels import ChannelLayer
from weft.tasks.tag.config import TagModelConfig
from weft.tasks.tag.lexicon import Lexicon, SeriesLexicon, TextLexicon, WordLexicon, number_of_matches


class WordInputs(NamedTuple):
    """A batch of sentences of words. The spelling of a word form is encoded once per batch."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    shapes: Tensor  # (B, T)
    forms: Tensor  # (B, T): the row of `spelling`
    spelling: Padded  # (U, C): characters of the U distinct word forms


class CharacterInputs(NamedTuple):
    """A batch of sentences of characters, with character bigrams and matches with training words."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    pairs: Tensor  # (B, T + 1): character t ends bigram t and begins bigram t + 1
    matches: Tensor | None  # (B, T)


class SeriesInputs(NamedTuple):
    """A batch of series."""

    ids: Tensor  # (B, T, C): scaled values
    lengths: Tensor  # (B,)


Inputs = WordInputs | CharacterInputs | SeriesInputs


def collate(columns: Mapping[str, Column], rows: IntArray) -> Inputs:
    """Builds a batch from the given rows of the columns that a lexicon encodes."""
    ids, lengths = take(columns["words"], rows)
    if ids.dim() == 3:
        return SeriesInputs(ids, lengths)
    if "pairs" in columns:
        matches = take(columns["matches"], rows).ids if "matches" in columns else None
        return CharacterInputs(ids, lengths, take(columns["pairs"], rows).ids, matches)
    forms = take(columns["forms"], rows).ids
    inside = torch.arange(forms.shape[1]) < lengths[:, None]
    distinct, indices = np.unique(forms[inside].numpy(), return_inverse=True)
    forms[inside] = torch.from_numpy(indices)
    return WordInputs(ids, lengths, take(columns["shapes"], rows).ids, forms, take(columns["spelling"], distinct))


class WordEncoder(nn.Module):
    """Word embedding, word shape embedding, and a bidirectional recurrent layer over the characters of the word.

    words (B, T) -> (B, T, embedding_dim + shape_dim + 2 char_hidden_size). The spelling is represented by the final
    state of each direction (Lample et al. 2016, "Neural architectures for named entity recognition").

    Raises:
        WeftError: both embedding_dim and char_dim are 0.
    """

    def __init__(self, lexicon: WordLexicon, config: TagModelConfig) -> None:
        super().__init__()
        if not config.embedding_dim and not config.char_dim:
            raise WeftError("model.embedding_dim and model.char_dim are both 0", expected="one of them above 0")
        alpha = config.word_dropout_alpha
        self.words = TokenEmbedding(lexicon.words.counts, config.embedding_dim, alpha) if config.embedding_dim else None
        self.shapes = TokenEmbedding(lexicon.shapes.counts, config.shape_dim, alpha) if config.shape_dim else None
        self.characters = self.spell = None
        self.output_size = config.embedding_dim + config.shape_dim
        if config.char_dim:
            self.characters = TokenEmbedding(lexicon.characters.counts, config.char_dim, alpha)
            self.spell = make_stack(config.cell, config.char_dim, config.char_hidden_size, bidirectional=True)
            self.output_size += self.spell.output_size

    def forward(self, inputs: WordInputs, drop: Dropout = NO_DROPOUT) -> Embedded:
        parts = [] if self.words is None else [self.words.part(inputs.ids)]
        if self.shapes is not None:
            parts.append(self.shapes.part(inputs.shapes))
        if self.characters is not None and self.spell is not None:
            _, (last,) = self.spell(self.characters(inputs.spelling.ids), lengths=inputs.spelling.lengths)
            parts += [Part(inputs.forms, side.h) for side in last]  # (U, C) each
        return Embedded(parts, drop)


class CharacterEncoder(nn.Module):
    """Embeddings of characters, of the two bigrams that contain a character, and of its matches with training words.

    characters (B, T) -> (B, T, embedding_dim + 2 bigram_dim + match_dim).

    Raises:
        WeftError: both embedding_dim and bigram_dim are 0.
    """

    def __init__(self, lexicon: TextLexicon, config: TagModelConfig) -> None:
        super().__init__()
        assert not isinstance(lexicon, WordLexicon)
        if not config.embedding_dim and not config.bigram_dim:
            raise WeftError("model.embedding_dim and model.bigram_dim are both 0", expected="one of them above 0")
        alpha = config.word_dropout_alpha
        self.words = TokenEmbedding(lexicon.words.counts, config.embedding_dim, alpha) if config.embedding_dim else None
        self.pairs = TokenEmbedding(lexicon.pairs.counts, config.bigram_dim, alpha) if config.bigram_dim else None
        self.output_size = config.embedding_dim + 2 * config.bigram_dim
        self.matches = None
        if config.match_dim and lexicon.match_length:
            self.matches = TokenEmbedding([0] * number_of_matches(lexicon.match_length), config.match_dim, alpha=0)
            self.output_size += config.match_dim

    def forward(self, inputs: CharacterInputs, drop: Dropout = NO_DROPOUT) -> Embedded:
        parts = [] if self.words is None else [self.words.part(inputs.ids)]
        if self.pairs is not None:
            ids, table, rates = self.pairs.part(inputs.pairs)
            pairs = drop_ids(ids.to(table.device), rates)  # (B, T + 1): dropped at both characters or at none
            parts += [Part(pairs[:, :-1], table), Part(pairs[:, 1:], table)]
        if self.matches is not None:
            assert inputs.matches is not None
            parts.append(self.matches.part(inputs.matches))
        return Embedded(parts, drop)


class SeriesEncoder(nn.Module):
    """A linear map of the channels of series (B, T, C) -> (B, T, E)."""

    words = None  # no embedding that an encoder of text could give

    def __init__(self, lexicon: SeriesLexicon, config: TagModelConfig) -> None:
        super().__init__()
        self.channels = ChannelLayer(len(lexicon.field.channels), config.embedding_dim)
        self.output_size = self.channels.output_size

    def forward(self, inputs: SeriesInputs, drop: Dropout = NO_DROPOUT) -> Tensor:
        values = inputs.ids
        if self.channels.projection is not None:
            values = values.to(self.channels.projection.weight.device)
        return drop.apply(self.channels(values))


def make_encoder(lexicon: Lexicon, config: TagModelConfig) -> WordEncoder | CharacterEncoder | SeriesEncoder:
    """Builds the encoder of the lexicon's tokens, or steps."""
    if isinstance(lexicon, SeriesLexicon):
        return SeriesEncoder(lexicon, config)
    return WordEncoder(lexicon, config) if isinstance(lexicon, WordLexicon) else CharacterEncoder(lexicon, config)


class TokenEmbedding(nn.Module):
    """An embedding with word dropout: an id seen n times is read as 0, unknown, with probability a / (a + n).

    Kiperwasser and Goldberg 2016, "Simple and accurate dependency parsing".

    Args:
        counts: how often each id occurs in the training data.
        size: the embedding dimension.
        alpha: a, the strength of the word dropout; 0 means none.
    """

    dropout_rate: Tensor  # (V,)

    def __init__(self, counts: Sequence[int], size: int, alpha: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(counts), size))
        nn.init.normal_(self.weight, std=size**-0.5)
        # On the CPU in an outline too: for arithmetic on the meta device torch loads its compiler.
        seen = torch.tensor(counts, dtype=torch.float32, device="cpu")
        rate = alpha / (alpha + seen) if alpha else torch.zeros_like(seen)
        self.register_buffer("dropout_rate", rate, persistent=False)

    def part(self, ids: Tensor) -> Part:
        """Returns the lookup of ids (B, T), with word dropout in training mode."""
        return Part(ids, self.weight, self.dropout_rate if self.training else None)

    def forward(self, ids: Tensor) -> Embedded:
        """Looks up ids (B, T)."""
        return Embedded([self.part(ids)])
