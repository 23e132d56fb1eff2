"""Embedded grammars: text with known entropy, and parallel text with unambiguous translations."""
