"""What brokers know of the cluster: the image, its records, the configuration tables.  Pure values, no I/O."""
