"""One batch of 16 KiB on the broker's path: header view, CRC, patch in place, the validator.

    python -m bench.micro.bench_batch

The target of issue 3: header view and in-place patch with the CRC check under 4 microseconds.  What the others cost
is beside it: the same by kafka-python's record reader, and Stratalog's own record-by-record ways.
"""

from __future__ import annotations

from kafka.record.memory_records import MemoryRecords

from bench._run import Bench
from stratalog.records import kernels
from stratalog.records.batch import CREATE_TIME, batches, build_batch, crc_is_valid, patch, read_header, records_of
from stratalog.records.compression import NAMES
from stratalog.records.validate import analyze, validate_and_assign

NOW = 1_700_000_000_000
SIZE = 16 << 10


def batch_of(size: int, value_size: int, codec: int = 0) -> bytearray:
    value = bytes(range(97, 97 + 25)) * (value_size // 25)
    return build_batch([(NOW + i, b"key-%08d" % i, value) for i in range(size // (value_size + 20))], codec=codec)


def main() -> None:
    bench = Bench("batch")
    data = batch_of(SIZE, 100)
    view = memoryview(data)
    frozen = bytes(data)

    def path() -> None:
        header = read_header(view)
        if not crc_is_valid(view, header):
            raise AssertionError
        patch(view, 0, base_offset=5_000_000_000, leader_epoch=4)

    def kafka_python() -> None:
        MemoryRecords(frozen).next_batch().validate_crc()

    timings = bench.compare(
        "16 KiB: header view, CRC check, patch in place",
        {"stratalog": path, "kafka-python, header and CRC only": kafka_python},
    )
    if timings:
        bench.value("header view, CRC check, patch", timings["stratalog"].cpu * 1e6, "µs", at_most=4.0)
    bench.compare("header view alone", {"read_header": lambda: read_header(view)})
    log = b"".join([frozen] * 64)
    bench.compare("walk over 64 headers", {"batches": lambda: sum(header.count for header in batches(log))})

    def stamped() -> None:
        patch(view, 0, max_timestamp=NOW, timestamp_type=1)
        patch(view, 0, max_timestamp=NOW + 1, timestamp_type=CREATE_TIME)

    bench.compare("two stamps of the time, each with a new CRC", {"patch": stamped})
    kernels.load_kernels()
    for codec in range(5):
        packed = batch_of(SIZE, 100, codec)

        def produce(packed: bytearray = packed, inspect: bool = False) -> None:
            patch(packed, 0, base_offset=0)
            validate_and_assign(
                packed, base_offset=77, now_ms=NOW, leader_epoch=3, headers=analyze(packed), inspect=inspect
            )

        cases = {"as the topic asks": produce}
        if codec == 0:
            cases["every record looked at"] = lambda: produce(inspect=True)
        bench.compare(f"analyze and validate 16 KiB, {NAMES[codec]}", cases)
    header = read_header(view)
    bench.compare("131 records as objects", {"records_of": lambda: list(records_of(view, header))})
    bench.finish()


if __name__ == "__main__":
    main()
