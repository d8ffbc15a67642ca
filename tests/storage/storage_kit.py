"""What the tests of a log share: batches, a log in a fresh directory, and how to read it back."""

from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation, Log, Origin

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1 << 20, segment_index_bytes=4096, index_interval_bytes=200)


def make_batch(
    values, *, timestamp=NOW, pid=-1, epoch=-1, sequence=-1, txn=False, codec=0, base=0, leader=-1, keys=None
):
    """A produced batch of these values, one record each, a millisecond apart."""
    builder = batches.BatchBuilder(
        base_offset=base,
        leader_epoch=leader,
        codec=codec,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=txn,
    )
    for i, value in enumerate(values):
        key = None if keys is None else keys[i]
        builder.append(timestamp + i, key, value)
    return builder.build()


class Kit:
    """A log in a directory, opened again as often as a test wants."""

    def __init__(self, directory):
        self.directory = str(directory)
        self.disk = RealDisk()
        self.now = NOW

    def open(self, config=CONFIG, disk=None, **options):
        options.setdefault("now_ms", self.now)
        log = Log.open(disk or self.disk, self.directory, topic="t", partition=0, config=config, **options)
        log.update_high_watermark(log.log_end_offset)
        return log

    def append(self, log, *values, leader=0, **options):
        info = log.append_as_leader(memoryview(make_batch(values, **options)), leader, self.now)
        log.maybe_increment_high_watermark(log.log_end)
        return info

    def marker(self, log, pid, epoch, *, commit, coordinator=0, version=0, leader=0):
        batch = control.build_marker(
            committed=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator, timestamp=self.now
        )
        info = log.append_as_leader(
            memoryview(batch), leader, self.now, origin=Origin.COORDINATOR, transaction_version=version
        )
        log.maybe_increment_high_watermark(log.log_end)
        return info

    def txn(self, log, pid, epoch, sequence, *values, leader=0):
        guard = log.start_verification(pid, sequence, epoch, False, self.now)
        batch = make_batch(values, pid=pid, epoch=epoch, sequence=sequence, txn=True)
        info = log.append_as_leader(memoryview(batch), leader, self.now, guard=guard)
        log.maybe_increment_high_watermark(log.log_end)
        return info


def contents(log, start=None, isolation=Isolation.LOG_END, max_bytes=1 << 20):
    """(offset, value) of every record from `start` on, control records left out."""
    found = []
    offset = log.log_start_offset if start is None else start
    while True:
        data = log.read(offset, max_bytes, isolation)
        if data.region is None:
            return found
        raw = data.region.read()
        before = offset
        for header in batches.batches(raw):
            assert batches.crc_is_valid(raw, header)
            if not header.is_control:
                found += [(r.offset, r.value) for r in batches.records_of(raw, header) if r.offset >= offset]
            offset = header.next_offset
        assert offset > before, "a read that brings nothing"
