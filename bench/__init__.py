"""Benches: `micro` for one function, `macro` for the running broker; figures are kept in `history.jsonl`."""
