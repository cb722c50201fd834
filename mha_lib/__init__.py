"""Multi-head attention, from scratch in NumPy and again in PyTorch: the library behind the book.

Importing the package is light; ``mha_lib.pytorch`` is imported where torch is needed.
"""

__version__ = "0.1.0"
