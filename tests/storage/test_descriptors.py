"""What an open log costs in descriptors: a broker must be able to start with thousands of partitions nobody uses."""

import collections
import errno
import os

import pytest
from storage_kit import CONFIG

from stratalog.base.types import Uuid
from stratalog.server.disk import RealFile

TOPIC_ID = Uuid(bytes(range(16)))


def descriptors(kit):
    """How many this process holds of the files in the log's directory, by their kind."""
    found = collections.Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that lists
        if path.startswith(kit.directory + "/"):
            found[os.path.basename(path).rpartition(".")[2]] += 1
    return found


def sizes(kit):
    return {name: os.stat(f"{kit.directory}/{name}").st_size for name in os.listdir(kit.directory)}


def index_sizes(kit):
    return [size for name, size in sorted(sizes(kit).items()) if name.endswith("index")]


def test_a_new_log_holds_no_descriptor_and_has_all_its_files(kit):
    log = kit.open(topic_id=TOPIC_ID)
    assert sum(descriptors(kit).values()) <= 1
    assert {name: size for name, size in sizes(kit).items() if name != "partition.metadata"} == {
        f"{0:020d}.log": 0,
        f"{0:020d}.index": 0,
        f"{0:020d}.timeindex": 0,
    }
    log.close()
    assert kit.open(had_clean_shutdown=True).report.findings == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_loaded_log_holds_no_descriptor_until_it_is_used(kit, clean):
    log = kit.open()
    for i in range(40):
        kit.append(log, b"x" * 100, timestamp=kit.now + i)
    log.close(clean=clean)
    log = kit.open(had_clean_shutdown=clean)
    assert sum(descriptors(kit).values()) <= 1
    assert all(0 < size < CONFIG.segment_index_bytes // 2 for size in index_sizes(kit))
    assert log.active_segment.largest_timestamp == kit.now + 39  # what retention asks each of them
    log.flush()
    assert sum(descriptors(kit).values()) <= 1
    kit.append(log, b"more")
    assert descriptors(kit)["log"] == 1 and 3 <= sum(descriptors(kit).values()) <= 5
    assert log.read(7, 1 << 10).region is not None
    log.close()
    assert not descriptors(kit)


def test_a_log_that_was_appended_to_and_flushed_holds_its_log_and_indexes(kit):
    log = kit.open(topic_id=TOPIC_ID)
    kit.append(log, b"x")
    log.flush()
    assert set(descriptors(kit)) == {"log", "index", "timeindex"}
    assert sum(descriptors(kit).values()) <= 5


def test_a_log_that_retention_has_emptied_holds_its_log_alone(kit):
    log = kit.open()
    for i in range(40):
        kit.append(log, b"x" * 100, timestamp=kit.now + i)
    log.close()
    log = kit.open(had_clean_shutdown=True)
    log.finish_deletion(log.delete_segments(log.segments, "retention", kit.now))
    assert sum(descriptors(kit).values()) <= 1
    assert kit.append(log, b"more").first_offset == 40
    log.close()
    assert kit.open(had_clean_shutdown=True).log_end_offset == 41


def test_indexes_that_a_load_rebuilt_are_synced_by_a_clean_stop(kit, monkeypatch):
    log = kit.open()
    for _ in range(40):
        kit.append(log, b"x" * 100)  # of one time: the stop has no last entry to write
    log.close(clean=False)
    for name in os.listdir(kit.directory):
        if name.endswith("index"):
            os.unlink(f"{kit.directory}/{name}")
    log = kit.open(recovery_point=40)  # nothing is left to flush but the indexes
    synced = []
    real = RealFile.fsync
    monkeypatch.setattr(RealFile, "fsync", lambda file: (synced.append(file.path.rpartition(".")[2]), real(file))[1])
    log.close()
    assert {"index", "timeindex"} <= set(synced)
    log = kit.open(had_clean_shutdown=True)
    assert log.active_segment.max_timestamp == kit.now


def test_a_roll_during_a_flush_leaves_its_last_index_entries_to_the_next(kit, monkeypatch):
    log = kit.open()
    for i in range(40):
        kit.append(log, b"x" * 100, timestamp=kit.now + i)
    plan = log.flush_plan()
    plan.run()
    kit.append(log, b"x" * 100, timestamp=kit.now + 50)
    log.roll(kit.now)  # the last entry, and the cut
    log.complete_flush(plan)
    synced = []
    real = RealFile.fsync
    monkeypatch.setattr(RealFile, "fsync", lambda file: (synced.append(file.path), real(file))[1])
    log.flush()
    assert {log.segments[0].offset_index.file.path, log.segments[0].time_index.file.path} <= set(synced)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("step", ["allocate", "map"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_append_that_finds_no_room_for_the_indexes_leaves_nothing(kit, monkeypatch, kind, step, number):
    log = kit.open()
    for i in range(40):
        kit.append(log, b"x" * 100, timestamp=kit.now + i)
    log.close()
    log = kit.open(had_clean_shutdown=True)
    before, real = sizes(kit), getattr(RealFile, step)

    def refuse(file, size):
        if file.path.endswith(kind) and size > CONFIG.segment_index_bytes // 2:  # not those who only look
            raise OSError(number, os.strerror(number), file.path)
        return real(file, size)

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, step, refuse)
        with pytest.raises(OSError) as raised:
            kit.append(log, b"no")
    assert raised.value.errno == number
    after = sizes(kit)
    assert after[f"{0:020d}{kind}"] == before[f"{0:020d}{kind}"]  # zeros behind the entries would count
    assert after[f"{0:020d}.log"] == before[f"{0:020d}.log"] and log.log_end_offset == 40
    log.check_invariants()
    if number == errno.ENOSPC:
        assert kit.append(log, b"yes").first_offset == 40
        assert log.active_segment.lookup(20) > 0
    log.close()
    assert kit.open().log_end_offset == 40 + (number == errno.ENOSPC)


def test_a_log_that_nobody_appended_to_rolls_truncates_and_closes(kit):
    log = kit.open()
    for i in range(40):
        kit.append(log, b"x" * 100, timestamp=kit.now + i)
    log.close()
    log = kit.open(had_clean_shutdown=True)
    before = index_sizes(kit)
    log.close()
    assert index_sizes(kit) == before
    log = kit.open(had_clean_shutdown=True)
    assert log.truncate_to(30, kit.now)
    assert kit.append(log, b"y").first_offset == 30
    log.close()
    log = kit.open(had_clean_shutdown=True)
    log.roll(kit.now)
    assert kit.append(log, b"z").first_offset == 31
    assert [segment.base_offset for segment in log.segments] == [0, 31]
    log.close()
    assert kit.open().log_end_offset == 32
