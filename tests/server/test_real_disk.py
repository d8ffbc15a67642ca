"""Whole files through the real disk."""

import errno
import os

import pytest

from stratalog.server.disk import RealDisk


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 10_000)
    return str(tmp_path / "file")


def test_a_file_is_read_whole_also_when_it_grows_meanwhile(path, monkeypatch):
    whole = bytes(range(256)) * 10_000
    assert RealDisk().read(path) == RealDisk().read(path, limit=len(whole)) == whole
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result((*real(fd)[:6], 10, *real(fd)[7:10])))
    assert RealDisk().read(path) == whole
    with pytest.raises(OSError) as raised:
        RealDisk().read(path, limit=1000)
    assert raised.value.errno == errno.EFBIG


@pytest.mark.parametrize(("name", "number"), [("nothing", errno.ENOENT), ("", errno.EISDIR)])
def test_an_error_names_the_file(path, name, number):
    wrong = os.path.join(os.path.dirname(path), name)
    with pytest.raises(OSError) as raised:
        RealDisk().read(wrong)
    assert (raised.value.errno, raised.value.filename) == (number, wrong)


def test_a_file_above_the_limit_is_refused(path):
    with pytest.raises(OSError) as raised:
        RealDisk().read(path, limit=2_559_999)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, path)
