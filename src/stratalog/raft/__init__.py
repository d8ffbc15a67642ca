"""The metadata log and its quorum (one voter today): `__cluster_metadata-0`, its snapshots and its quorum state."""
