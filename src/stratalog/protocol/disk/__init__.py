"""The schemas of what Kafka keeps on disk with its message encoding: control records, group, transaction and share
state, the metadata log, producer snapshots, remote log metadata.

The same classes and codecs as the wire.  What stands around a record (an int16 version, an envelope of varints) is
said in each module and done by whoever owns the file or topic.
"""
