"""Readers on other threads while the writer deletes, truncates, renames and rolls: none of it disturbs them."""

import random
import threading
import time

import pytest
from storage_kit import CONFIG, NOW, contents, make_batch

from stratalog.base.failures import ApiError
from stratalog.records import batch as batches
from stratalog.server.disk import RealDisk
from stratalog.storage import read
from stratalog.storage.log import Isolation

SMALL = CONFIG.__class__(segment_bytes=1500, segment_index_bytes=4096, index_interval_bytes=100)


def fill(kit, log, count=60):
    for i in range(count):
        kit.append(log, b"%d" % i + b"x" * 60, timestamp=NOW + i)
    return contents(log)


class PausingDisk(RealDisk):
    """Runs `between` right after a rename, before whoever asked for it goes on."""

    between = None

    def rename(self, source, target):
        super().rename(source, target)
        if self.between is not None:
            self.between(source)


def reader_between(log, ask):
    """A thread that asks in the middle of the first rename of a `.log`, or of a directory; and what it got."""
    got = []
    threads = []

    def run():
        try:
            got.append(ask(log))
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            got.append(error)

    def between(source):
        if source.endswith(".index") or threads:
            return
        threads.append(threading.Thread(target=run))
        threads[0].start()
        threads[0].join(0.1)

    log.disk.between = between
    return got, threads


@pytest.mark.parametrize(
    "change",
    [
        lambda log, path: log.delete_segments(log.segments[:2], "retention", NOW),
        lambda log, path: log.rename_directory(path + "-moved-0"),
        lambda log, path: log.rename_directory(path + "-moved-0") or log.truncate_to(1, NOW),
    ],
    ids=["retention", "directory", "directory and truncation"],
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.read(0, 1, Isolation.TXN_COMMITTED).region.read(),
        lambda log: log.offset_for_timestamp(NOW).offset,
        lambda log: log.aborted_between(0, 9),
    ],
    ids=["offset", "timestamp", "aborted"],
)
def test_a_rename_under_a_reader_is_not_seen(kit, change, ask):
    """D12: a reader that opens a segment in the middle of a rename is no failure of the disk, which would take the
    whole directory offline."""
    log = kit.open(SMALL)
    fill(kit, log)
    wanted = ask(log)
    log.close()
    log = kit.open(SMALL, disk=PausingDisk(), had_clean_shutdown=True)
    got, threads = reader_between(log, ask)
    change(log, kit.directory)
    threads[0].join()
    if log.log_start_offset:  # it came when the bounds had moved already
        assert isinstance(got[0], ApiError) or got[0] in (wanted, log.log_start_offset)
    else:
        assert got == [wanted]


def test_a_reader_of_a_segment_that_is_gone_takes_the_next_view(kit, monkeypatch):
    """D12: its files were unlinked before it opened them; by now the offset is out of range, or truncated away."""
    log = kit.open(SMALL)
    rows = fill(kit, log)
    changes = []
    real = read._read

    def late(*args):
        if changes:
            changes.pop()()
            raise FileNotFoundError(2, "No such file or directory", log.segments[0].path)
        return real(*args)

    monkeypatch.setattr(read, "_read", late)
    changes.append(lambda: log.finish_deletion(log.delete_segments(log.segments[:2], "retention", NOW)))
    with pytest.raises(ApiError, match="has no offset 0"):
        log.read(0, 1)
    changes.append(lambda: log.truncate_to(50, NOW))
    assert contents(log, start=48) == rows[48:50]
    with pytest.raises(FileNotFoundError):  # nobody but the log takes its files away
        changes.append(lambda: None)
        log.read(48, 1)
    changes.append(log.delete)
    with pytest.raises(ApiError, match="closed under a reader"):
        log.read(48, 1)


def test_an_index_let_go_while_readers_open_it(kit):
    """D11 (KAFKA-14792): a flush lets go of closed indexes, a reader opens them again; the writer deletes, truncates
    and moves meanwhile.  Nobody gets anything but records, or an offset that is out of range."""
    log = kit.open(SMALL)
    fill(kit, log, 200)
    stop = threading.Event()
    failed = []

    def reader(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            time.sleep(0.001)
            start, end = log.log_start_offset, log.log_end_offset
            offset = rng.randint(start, max(start, end))
            try:
                log.offset_for_timestamp(NOW + offset)
                log.aborted_between(start, end)
                data = log.read(offset, 1 << 20, rng.randrange(3))
                if data.region is not None:
                    raw = data.region.read()
                    assert next(iter(batches.batches(raw))).last_offset >= offset
            except ApiError:
                pass
            except BaseException as error:  # noqa: BLE001 - handed to the test's thread
                failed.append(error)

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    rng = random.Random(1)
    for turn in range(1, 61):
        for _ in range(20):
            end = log.log_end_offset
            log.append_as_leader(make_batch([b"x" * 60], timestamp=NOW + end), 0, NOW)
        log.maybe_increment_high_watermark(log.log_end)
        for segment in log.segments[:-1]:
            for index in (segment.offset_index.file, segment.time_index.file):
                index.trim()
                index.let_go(index.changes)
        if len(log.segments) > 20:
            log.finish_deletion(log.delete_segments(log.segments[:5], "retention", NOW))
        if turn % 7 == 0:
            log.truncate_to(log.log_end_offset - rng.randint(0, 30), NOW)
        if turn % 11 == 0:
            log.rename_directory(f"{kit.directory}-{turn}")
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
