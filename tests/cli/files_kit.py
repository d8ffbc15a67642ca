"""A partition and a data directory of ours for the commands that look at files, and the ways to damage them."""

import struct

from stratalog.base.types import Uuid
from stratalog.cli import main
from stratalog.records import batch as batches
from stratalog.records import control
from stratalog.server.disk import RealDisk
from stratalog.storage import checkpoints, layout
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Log, Origin

NOW = 1_750_000_000_000
CONFIG = LogConfig(segment_bytes=6_000, index_interval_bytes=300, segment_index_bytes=4096)


def batch(values, *, pid=-1, epoch=-1, sequence=-1, txn=False, codec=0, timestamp=NOW):
    builder = batches.BatchBuilder(
        codec=codec, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=txn
    )
    for i, value in enumerate(values):
        builder.append(timestamp + i, b"k%d" % i, value, (("h", b"x"),))
    return builder.build()


def put(log, raw, **options):
    log.append_as_leader(memoryview(raw), options.pop("leader", 0), NOW, **options)
    log.maybe_increment_high_watermark(log.log_end)


def fill(log, batches_count=60):
    """Every codec, several segments and epochs, an idempotent producer, transactions committed and aborted."""
    sequence = 0
    for i in range(batches_count):
        values = [b"value %d of %d " % (j, i) * 4 for j in range(4)]
        put(log, batch(values, codec=i % 5, timestamp=NOW - 100_000 + i * 100), leader=i // 20)
        put(log, batch(values[:2], pid=11, epoch=0, sequence=sequence), leader=i // 20)
        sequence += 2
        if i % 12 == 5:
            epoch = 2 * (i // 12)
            guard = log.start_verification(21, 0, epoch, True, NOW)
            data = batch(values[:3], pid=21, epoch=epoch, sequence=0, txn=True)
            put(log, data, guard=guard, leader=i // 20)
            marker = control.build_marker(
                committed=i % 24 == 5, producer_id=21, producer_epoch=epoch + 1, coordinator_epoch=1, timestamp=NOW
            )
            put(log, marker, origin=Origin.COORDINATOR, transaction_version=2, leader=i // 20)


def write_data_directory(path):
    """As a broker leaves it after a clean stop: one partition `orders-0`, all small files."""
    disk = RealDisk()
    log = Log.open(
        disk, f"{path}/orders-0", topic="orders", partition=0, config=CONFIG, now_ms=NOW, topic_id=Uuid(b"\7" * 16)
    )
    fill(log)
    log.close()
    key = {("orders", 0): log.log_end_offset}
    for name in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        checkpoints.write_offsets(disk, f"{path}/{name}", key)
    checkpoints.write_offsets(disk, f"{path}/{layout.LOG_STARTS}", {})
    checkpoints.write_meta_properties(disk, str(path), cluster_id="c", node_id=1, directory_id=Uuid(b"\1" * 16))
    checkpoints.write_clean_shutdown(disk, str(path), 7)
    return path


def run(capsys, *arguments):
    """Exit code, standard output, standard error of a command."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def files(partition, suffix):
    return sorted(partition.glob(f"*{suffix}"))


# --- the damage table of Kafka's own verifier, and more ---------------------------------------------------------------
def flip(path, position, mask=0x40):
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def flip_payload(partition):
    """One payload byte of a batch in the middle; a byte of the header need not be in any checksum."""
    path = files(partition, ".log")[0]
    headers = list(batches.batches(path.read_bytes()))
    flip(path, headers[len(headers) // 2].end - 1)
    return "damaged-batch"


def cut_in_a_batch(partition):
    path = files(partition, ".log")[-1]
    path.write_bytes(path.read_bytes()[:-20])
    return "torn-tail"


def cut_a_closed_segment(partition):
    path = files(partition, ".log")[0]
    path.write_bytes(path.read_bytes()[:-20])
    return "damaged-batch"


def wrong_position(partition):
    path = files(partition, ".index")[0]
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 12, struct.unpack_from(">i", data, 12)[0] + 1)
    path.write_bytes(data)
    return "index"


def position_of_another_batch(partition):
    path = files(partition, ".index")[0]
    data = bytearray(path.read_bytes())
    data[12:16] = data[20:24]
    path.write_bytes(data)
    return "index"


def index_of_a_wrong_size(partition):
    path = files(partition, ".index")[0]
    path.write_bytes(path.read_bytes()[:-3])
    return "index"


def wrong_time(partition):
    path = files(partition, ".timeindex")[0]
    flip(path, 12 + 7, 0x01)
    return "time-index"


def time_goes_back(partition):
    path = files(partition, ".timeindex")[0]
    data = path.read_bytes()
    path.write_bytes(data[12:24] + data[:12] + data[24:])
    return "time-index"


def snapshot_flipped(partition):
    path = max(files(partition, ".snapshot"), key=lambda file: file.stat().st_size)
    flip(path, 20)
    return "malformed"


def transaction_index_of_version_1(partition):
    flip(files(partition, ".txnindex")[0], 1, 0x01)
    return "txn-index"


def aborted_transaction_missing(partition):
    path = files(partition, ".txnindex")[-1]
    path.write_bytes(path.read_bytes()[:-34])
    return "txn-index"


def transaction_that_never_was(partition):
    path = files(partition, ".txnindex")[0]
    data = path.read_bytes()
    path.write_bytes(data + struct.pack(">hqqqq", 0, 999, *struct.unpack_from(">qqq", data, 10)))
    return "txn-index"


def index_missing(partition):
    files(partition, ".index")[0].unlink()
    return "missing"


def log_missing(partition):
    files(partition, ".log")[0].unlink()
    return "orphan"


def epochs_torn(partition):
    (partition / "leader-epoch-checkpoint").write_text("0\n5\n0 0\n")
    return "malformed"


def epochs_wrong(partition):
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n77 0\n")
    return "epochs"


def topic_id_nonsense(partition):
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: nonsense")
    return "malformed"


def stray_file(partition):
    (partition / "notes.txt").write_text("x")
    return "stray-file"


def swap_left_over(partition):
    (partition / "00000000000000000000.log.swap").write_bytes(b"")
    return "left-over"


def garbage_at_the_end(partition):
    path = files(partition, ".log")[-1]
    path.write_bytes(path.read_bytes() + bytes(100))
    return "torn-tail"


def an_old_block_at_the_end(partition):
    path = files(partition, ".log")[-1]
    data = path.read_bytes()
    path.write_bytes(data + data)
    return "offset-order"


DAMAGES = [
    flip_payload,
    cut_in_a_batch,
    cut_a_closed_segment,
    wrong_position,
    position_of_another_batch,
    index_of_a_wrong_size,
    wrong_time,
    time_goes_back,
    snapshot_flipped,
    transaction_index_of_version_1,
    aborted_transaction_missing,
    transaction_that_never_was,
    index_missing,
    log_missing,
    epochs_torn,
    epochs_wrong,
    topic_id_nonsense,
    stray_file,
    swap_left_over,
    garbage_at_the_end,
    an_old_block_at_the_end,
]
