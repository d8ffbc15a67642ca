"""The wire and everything that Kafka keeps on disk with its message encoding.

One module for each API key (`k00_produce`, `k01_fetch` ...) holds typed classes, one for all versions of a message;
`disk/` holds the records.  `schema` is their language, `compiler` makes the codecs at first use, `interpreter` is the
readable oracle, `apis` the registry, `headers` and `connection` what stands around a message.

Nothing here does I/O, knows a clock or logs payloads.  Codecs may be used from any thread.
"""
