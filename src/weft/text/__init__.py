"""Text: readers, normalization, tokenizers, vocabularies and file formats. No torch.

A `Corpus` streams lines, a `Normalizer` normalizes them, a `Tokenizer` splits them into tokens, and a `Vocabulary` maps
tokens to ids. `open_data` opens data by name; `weft.text.grammars` generates sentences with known entropy.
"""
