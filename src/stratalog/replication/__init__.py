"""One partition's replication: leader epoch, in-sync replicas, high watermark.  Pure but for its log."""
