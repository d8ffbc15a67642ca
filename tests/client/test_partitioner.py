"""The default partitioner equals Java's (facts: the hashes that Kafka's own UtilsTest publishes for these keys)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.client.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_the_published_hashes(key: bytes, signed: int) -> None:
    value = murmur2(key)
    assert (value - 2**32 if value >= 2**31 else value) == signed


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_key_always_has_a_partition(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions


@pytest.mark.java
def test_java_sends_keys_to_the_same_partitions(tmp_path: Path) -> None:
    from tools import kafka_peer

    home = kafka_peer.kafka_home()
    if home is None:
        pytest.skip(kafka_peer.why_missing())
    keys = [bytes(range(i)) + b"k%d" % i for i in range(64)]
    program = tmp_path / "Murmur.java"
    program.write_text(
        "import org.apache.kafka.common.utils.Utils;\n"
        "public class Murmur { public static void main(String[] keys) { for (String k : keys) {\n"
        "  byte[] b = java.util.HexFormat.of().parseHex(k);\n"
        "  System.out.println(Utils.toPositive(Utils.murmur2(b)) % 97); } } }\n"
    )
    result = subprocess.run(
        ["java", "-cp", f"{home}/libs/*", str(program), *(key.hex() for key in keys)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert [int(line) for line in result.stdout.split()] == [partition_for_key(key, 97) for key in keys]
