"""Text: readers, normalization, tokenizers, vocabularies and file formats. No torch.

A `Corpus` streams lines, a `Normalizer` normalizes them, a `Tokenizer` splits them into tokens, and a `Vocabulary` maps
tokens to ids. `open_data` opens data by name; `weft.text.grammars` generates sentences with known entropy.
"""

from weft.text.corpus import Corpus, Document, count_tokens, encode_corpus, open_tokens
from weft.text.datasets import DATASETS, Dataset, locate, open_data
from weft.text.parallel import PairFields, Pairs, fit_pair_fields, open_pairs
from weft.text.tokenizers import (
    TOKENIZERS,
    CharTokenizer,
    Normalizer,
    SpaceTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
    tokenizer_from_json,
)
from weft.text.vocabulary import BOS, EOS, PAD, RESERVED, UNK, Vocabulary

__all__ = [
    "BOS",
    "DATASETS",
    "EOS",
    "PAD",
    "RESERVED",
    "TOKENIZERS",
    "UNK",
    "CharTokenizer",
    "Corpus",
    "Dataset",
    "Document",
    "Normalizer",
    "PairFields",
    "Pairs",
    "SpaceTokenizer",
    "SubwordTokenizer",
    "Tokenizer",
    "Vocabulary",
    "WhitespaceTokenizer",
    "WordTokenizer",
    "count_tokens",
    "encode_corpus",
    "fit_pair_fields",
    "locate",
    "open_data",
    "open_pairs",
    "open_tokens",
    "tokenizer_from_json",
]
