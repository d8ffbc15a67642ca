"""The bottom row: types, the error table, ports and limits.  Imports nothing else of the project."""
