"""Batches: windows of one long stream of tokens, and examples of differing lengths."""
