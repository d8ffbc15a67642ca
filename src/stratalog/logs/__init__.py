"""One broker's logs: the registry over its directories, retention, compaction, deletion, disks that fail."""
