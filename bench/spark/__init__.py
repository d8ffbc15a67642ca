"""Benches of the Spark source."""
