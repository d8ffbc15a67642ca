"""The broker inside a test: a real one, in the test's process, with a clock and a disk that the test moves.

    import stratalog.testing

    def test_orders():
        with stratalog.testing.broker(topics={"orders": 3}) as b:
            run_my_service(bootstrap=b.bootstrap)
            assert [r.value for r in b.records("orders")] == [b"first", b"second"]
            b.clock.advance(days=8)                        # retention sees eight days go by
            b.refuse("Produce", times=3)                   # the next three produce requests fail
            with b.disk.full(): ...                        # writes get ENOSPC, until the end of the block

The broker runs in a thread of its own, listens on a free port of the loopback and keeps its data in a temporary
directory; several can run side by side, and nothing is left behind.  It is the broker of `stratalog serve`, with one
difference: creating a topic does not wait for fsync.
"""

from __future__ import annotations

from stratalog.testing.broker import BrokenStart, TestBroker, TestRecord, broker
from stratalog.testing.clock import TestClock
from stratalog.testing.disk import FaultOn, FaultyDisk

__all__ = ["BrokenStart", "FaultOn", "FaultyDisk", "TestBroker", "TestClock", "TestRecord", "broker"]
