"""Blocks that a growing segment takes ahead: seen in the file system only, and given back."""

import os

import pytest
from storage_kit import NOW, Kit, make_batch

from stratalog.server.disk import RealFile
from stratalog.storage.config import LogConfig
from stratalog.storage.segment import AHEAD_BYTES_MAX, AHEAD_FROM_BYTES

MIB = 1 << 20
LARGE = LogConfig(max_message_bytes=2 * MIB, segment_bytes=64 * MIB)


@pytest.fixture
def kit(tmp_path):
    probe = RealFile(f"{tmp_path}/probe", os.O_RDWR | os.O_CREAT)
    if not probe.reserve(0, 4 * MIB):
        pytest.skip("this file system takes no blocks ahead")
    probe.release()
    return Kit(tmp_path / "ahead-0")


def blocks_behind(log):
    status = os.stat(log.active_segment.path)
    return status.st_blocks * 512 - status.st_size


def fill(log, mebibytes):
    for _ in range(mebibytes):
        log.append_as_leader(memoryview(make_batch([bytes(MIB)])), 0, NOW)


def test_a_growing_segment_has_blocks_ahead_and_a_small_one_has_not(kit):
    log = kit.open(LARGE)
    log.append_as_leader(memoryview(make_batch([b"x" * 1000])), 0, NOW)
    assert blocks_behind(log) < 64 << 10
    fill(log, 8)
    assert MIB < blocks_behind(log) <= AHEAD_BYTES_MAX
    assert os.stat(log.active_segment.path).st_size == log.size, "the file is as long as its batches"


def test_a_roll_and_a_clean_stop_give_them_back(kit):
    log = kit.open(LARGE)
    fill(log, 8)
    first = log.active_segment.path
    modified = os.stat(first).st_mtime_ns
    log.roll(NOW)
    status = os.stat(first)
    assert status.st_blocks * 512 < status.st_size + AHEAD_FROM_BYTES
    assert status.st_mtime_ns == modified, "retention of what has no timestamps goes by it"
    fill(log, 8)
    last = log.active_segment.path
    log.close()
    status = os.stat(last)
    assert status.st_blocks * 512 < status.st_size + AHEAD_FROM_BYTES


def test_a_start_after_a_kill_gives_them_back(kit):
    log = kit.open(LARGE)
    fill(log, 8)
    assert blocks_behind(log) > MIB
    log.close(clean=False)
    log = kit.open(LARGE)
    assert blocks_behind(log) < AHEAD_FROM_BYTES and log.log_end_offset == 8


def test_where_the_file_system_cannot_an_append_is_as_it_was(kit, monkeypatch):
    monkeypatch.setattr(RealFile, "reserve", lambda self, position, length: False)
    log = kit.open(LARGE)
    fill(log, 4)
    assert log.log_end_offset == 4 and blocks_behind(log) < AHEAD_FROM_BYTES


def test_the_last_blocks_of_a_disk_are_not_taken_ahead(kit, monkeypatch):
    real = os.fstatvfs

    def nearly_full(fd):
        room = list(real(fd))
        room[4] = 63 * MIB // room[1]  # blocks that are free for us
        return os.statvfs_result(room)

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    log = kit.open(LARGE)
    fill(log, 8)
    assert blocks_behind(log) < AHEAD_FROM_BYTES


def test_blocks_go_back_when_the_disk_is_full_and_appends_go_on(kit):
    log = kit.open(LARGE)
    fill(log, 8)
    log.active_segment.give_blocks_back()
    assert blocks_behind(log) < AHEAD_FROM_BYTES
    fill(log, 1)
    assert log.log_end_offset == 9 and blocks_behind(log) > MIB
