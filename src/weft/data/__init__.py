"""Batches for training and evaluation: windows of one long token stream, and buckets of examples by length.

Shapes: B rows (batch size), T steps (sequence length).
"""
