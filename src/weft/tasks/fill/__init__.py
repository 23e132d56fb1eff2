"""Fill-in-the-blank models."""
