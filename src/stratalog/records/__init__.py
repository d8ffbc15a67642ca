"""Kafka's record batches as bytes: read, check, build, convert, validate.

Free functions and views over `(buffer, position)`.  Importing this package, or any module of it but `kernels` and
`arrow`, imports no codec library, no NumPy and no Numba: those come at first use.
"""
