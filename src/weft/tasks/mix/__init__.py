"""Mixtures of language models."""
