"""Training: the trainer, the optimizers, and the run directory."""
