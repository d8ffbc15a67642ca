"""One partition's log: segments, indexes, producer state, epochs, recovery.  All I/O goes through `base.ports.Disk`.

Start at `log.py`.  A `Log` has one writer (the loop, or the pool thread that loads it); readers on any thread take a
consistent view and never wait for the writer.
"""
