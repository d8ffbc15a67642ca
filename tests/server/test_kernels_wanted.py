"""A broker that gets compressed batches loads the kernels by itself; one that does not stays as small as it was."""

import subprocess
import sys

SCRIPT = """
import sys, time
from stratalog.records.kernels import kernels_ready, kernels_wanted
import stratalog.testing

with stratalog.testing.broker(topics={"few": 1, "many": 1}) as b:
    b.produce("few", [b"x" * 20] * 12_000)
    assert not kernels_wanted(), "records that are not compressed are nobody's business"
    b.produce("many", [b"x" * 20] * 12_000, compression="lz4")
    end = time.monotonic() + 120
    while not kernels_ready():
        assert time.monotonic() < end, "the kernels are not there after two minutes"
        time.sleep(0.1)
    b.produce("many", [b"y" * 20] * 12_000, compression="lz4")
    assert len(b.records("many")) == 24_000
print("loaded", "numba" in sys.modules)
"""


def test_a_broker_loads_the_kernels_when_many_compressed_records_come():
    """DESIGN, speed: the plain twin serves until the kernel is there.  In a process of its own: here they may be
    loaded already."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=280)
    assert done.stdout == "loaded True\n", done.stderr
