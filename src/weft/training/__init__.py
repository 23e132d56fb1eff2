"""Training: a trainer that is a generator of steps, optimizers, and the run directory.

trainer.py    Trainer: steps, schedules, evaluation, early stopping, checkpoints
slices.py     SlicedGradient: a batch in parts, whose gradients add up to the same bits for any number of workers
distributed.py  Workers: the processes that train together
optimizer.py  Optimizer: SGD, Adam, AdamW and Muon with gradient clipping and an EMA of the weights
muon.py       Muon: orthogonalised updates of hidden matrices
run.py        Run: the directory that holds a trained model; create, open, save, load
loss.py       Loss: a sum and a count
config.py     TrainConfig: the settings that every trained task has
"""
