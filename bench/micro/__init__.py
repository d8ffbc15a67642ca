"""Benches of single functions, side by side with other libraries."""
