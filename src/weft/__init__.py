"""weft: recurrent sequence models on your own text.

Shapes, here and everywhere: B rows, T steps, I input, H hidden, G gate blocks, V vocabulary, L layers,
D directions, S source steps, K beam width, R = B*K. Batch first.
"""

__version__ = "0.1.0"
