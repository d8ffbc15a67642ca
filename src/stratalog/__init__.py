"""Stratalog: the Kafka log that you can open.

Importing this package is cheap on purpose: nothing here imports NumPy, Numba, Arrow or the broker.  What needs
them is loaded at first use.
"""

__version__ = "0.1.0"
