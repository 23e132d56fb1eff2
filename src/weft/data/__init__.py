"""Stored columns, and batches of them: windows of one long stream, and buckets of examples by length.

Shapes: B rows (batch size), T steps (sequence length).
"""
