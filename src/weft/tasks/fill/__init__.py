"""Fill in the blank."""
