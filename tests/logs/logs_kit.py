"""What the tests of a broker's logs share: waiting for work off the loop, what is on the disk, a log and a cleaning
without a broker."""

import os
import time

from stratalog.logs.cleaner import choice
from stratalog.logs.cleaner.cleaning import Cleaning
from stratalog.logs.cleaner.manager import facts_of
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.records.offset_map import OffsetMap
from stratalog.server.disk import RealDisk
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation, Log, Origin

NOW = 1_700_000_000_000
SECRET = bytes(range(16))


def settle(broker, seconds=20.0):
    """Wait until nothing runs off the loop any more, cleaners included."""
    deadline = time.monotonic() + seconds
    quiet = 0
    running = broker.running
    service = running.log_service

    def idle():
        return (
            service.background_pool.outstanding == 0
            and service.cleaner_pool.outstanding == 0
            and not service.cleaner.busy
        )

    while quiet < 3:
        quiet = quiet + 1 if running.run_on_loop(idle) else 0
        assert time.monotonic() < deadline, "the broker does not come to rest"
        time.sleep(0.005)


def wait_for(condition, seconds=20.0, what="it"):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.01)


def files(path):
    return sorted(os.listdir(path))


def log_of(broker, topic, partition=0):
    return broker.running.logs.get(topic, partition)


class Kit:
    """A log in a directory and what may happen to it."""

    def __init__(self, directory, clean=False, now=NOW, **config):
        self.directory = str(directory)
        self.disk = RealDisk()
        self.now = now
        options = {
            "segment_bytes": 4096,
            "segment_index_bytes": 4096,
            "index_interval_bytes": 200,
            "cleanup_policy": ("compact",),
            "transaction_partition_verification_enable": False,
            "max_message_bytes": 1 << 20,
        }
        options.update(config)
        self.config = LogConfig(**options)
        self.log = self.open(had_clean_shutdown=clean)
        self.sequences = {}

    def open(self, **options):
        log = Log.open(
            self.disk, self.directory, topic="t", partition=0, config=self.config, now_ms=self.now, **options
        )
        log.update_high_watermark(log.log_end_offset)
        self.log = log
        return log

    def reopen(self, **options):
        self.log.close()
        return self.open(had_clean_shutdown=True, **options)

    def put(self, *pairs, pid=-1, epoch=0, txn=False, codec=0, timestamp=None, leader=0, headers=()):
        """One batch of (key, value) pairs."""
        sequence = -1
        if pid >= 0:
            sequence = self.sequences.get((pid, epoch), 0)
            self.sequences[pid, epoch] = sequence + len(pairs)
        builder = batches.BatchBuilder(
            codec=codec,
            producer_id=pid,
            producer_epoch=epoch if pid >= 0 else -1,
            base_sequence=sequence,
            transactional=txn,
        )
        for key, value in pairs:
            builder.append(self.now if timestamp is None else timestamp, key, value, headers)
        info = self.log.append_as_leader(memoryview(builder.build()), leader, self.now)
        self.log.maybe_increment_high_watermark(self.log.log_end)
        return info

    def marker(self, pid, epoch=0, *, commit, timestamp=None):
        batch = control.build_marker(
            committed=commit,
            producer_id=pid,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp=self.now if timestamp is None else timestamp,
        )
        info = self.log.append_as_leader(memoryview(batch), 0, self.now, origin=Origin.COORDINATOR)
        self.log.maybe_increment_high_watermark(self.log.log_end)
        return info

    def roll(self):
        self.log.roll(self.now)

    def clean(self, first=None, *, map_bytes=24 * 4096, chunk_bytes=1 << 16, weak_bits=None, retention=None):
        """One cleaning of all that may be cleaned; the job."""
        if retention is not None:
            from dataclasses import replace

            self.config = replace(self.config, delete_retention_ms=retention)
            self.log.configure(self.config)
        target = choice.cleanable(facts_of(self.log), first, self.now)
        job = Cleaning(
            self.log,
            target,
            lambda: OffsetMap(map_bytes, secret=SECRET, weak_bits=weak_bits),
            now_ms=self.now,
            chunk_bytes=chunk_bytes,
        )
        run(job)
        self.log.check_invariants()
        return job

    # --- looking ---------------------------------------------------------------------------------------------------
    def records(self, isolation=Isolation.LOG_END):
        """(offset, key, value) of every data record; under TXN_COMMITTED without what was aborted."""
        return [(r.offset, r.key, r.value) for r in records_of_log(self.log, isolation)]

    def keyed(self):
        return {key: (offset, value) for offset, key, value in self.records()}

    def headers(self):
        """The headers of all batches."""
        found = []
        for segment in self.log.segments:
            found += list(batches.batches(segment.file.pread(segment.size, 0)))
        return found

    def markers(self):
        found = []
        for segment in self.log.segments:
            raw = segment.file.pread(segment.size, 0)
            found += [
                (header.base_offset, control.marker_of(raw, header).committed)
                for header in batches.batches(raw)
                if header.is_control and header.count
            ]
        return found

    def shape(self):
        return [segment.base_offset for segment in self.log.segments]


def run(job, budget=1 << 16):
    """All steps of a cleaning, in one thread."""
    deletions = []
    while not job.done:
        job.advance(budget)
        if job.ready is not None:
            deletion = job.swap()
            assert deletion is not None
            deletions.append(deletion)
    job.discard()
    for deletion in deletions:
        job.log.finish_deletion(deletion)


def records_of_log(log, isolation):
    """As a consumer sees it: aborted transactions filtered by what the fetch says of them."""
    offset = log.log_start_offset
    while True:
        data = log.read(offset, 1 << 20, isolation)
        if data.region is None:
            return
        raw = data.region.read()
        aborted = sorted(data.aborted or (), key=lambda txn: txn.first_offset)
        active = set()
        last = offset
        for header in batches.batches(raw):
            assert batches.crc_is_valid(raw, header)
            last = header.next_offset
            while aborted and aborted[0].first_offset <= header.last_offset:
                active.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = control.marker_of(raw, header)
                if marker is not None and not marker.committed:
                    active.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in active:
                continue
            for record in batches.records_of(raw, header):
                if record.offset >= offset:
                    yield record
        if last <= offset:
            return
        offset = last
