"""Models: each gives a loss to train on and, where it generates, is a Stepper to decode from."""
