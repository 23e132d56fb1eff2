"""Sequence tagging and word segmentation."""
