"""Grammars whose entropy is known."""
