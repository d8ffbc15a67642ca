"""One broker's logs: which directories, which partitions in them, what is known of them across a restart."""
