"""Any sequence of operations against a naive list: what the list says, the log says, before and after each reload."""

import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_kit import NOW, Kit, contents, make_batch

from stratalog.base.failures import ApiError
from stratalog.storage.config import LogConfig
from stratalog.storage.log import Isolation

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, segment_index_bytes=240)


class LogMachine(RuleBasedStateMachine):
    """The model: `rows` is what was appended, (offset, timestamp, value); `epochs`; the producer's next sequence."""

    @initialize()
    def begin(self):
        self.root = tempfile.mkdtemp(prefix="log-model-")
        self.kit = Kit(f"{self.root}/t-0")
        self.log = self.kit.open(CONFIG)
        self.rows = []
        self.bounds = []
        self.start = 0
        self.end = 0
        self.flushed = 0
        self.epoch = 0
        self.epochs = []
        self.sequences = [(0, 0)]
        """(log end, next sequence) after each append of producer 1."""

    def teardown(self):
        if hasattr(self, "root"):
            self.log.close(clean=False)
            shutil.rmtree(self.root)

    def _note(self, info, values, timestamp):
        assert info.first_offset == self.end
        self.bounds.append(self.end)
        if not self.epochs or self.epochs[-1][0] < self.epoch:
            self.epochs = [*[row for row in self.epochs if row[1] < self.end], (self.epoch, self.end)]
        for i, value in enumerate(values):
            self.rows.append((self.end, timestamp + i, value))
            self.end += 1
        assert info.last_offset == self.end - 1

    @rule(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4),
        when=st.integers(-500, 500),
        codec=st.sampled_from([0, 0, 1]),
        count=st.integers(1, 3),
    )
    def append(self, sizes, when, codec, count):
        done = []
        for i in range(count):
            values = [b"%d:%d" % (self.end + i, size) + b"x" * size for size in sizes]
            raw = make_batch(values, timestamp=NOW + when, codec=codec)
            done.append((self.log.stage_append(raw, self.epoch, NOW), values))
        self.log.commit_staged(NOW)
        for info, values in done:
            self._note(info, values, NOW + when)

    @rule(again=st.booleans())
    def append_idempotent(self, again):
        _, sequence = self.sequences[-1]
        values = [b"p%d" % sequence]
        raw = make_batch(values, pid=1, epoch=0, sequence=sequence)
        copy = bytearray(raw)
        self._note(self.log.append_as_leader(raw, self.epoch, NOW), values, NOW)
        self.sequences.append((self.end, sequence + 1))
        if again:
            assert self.log.append_as_leader(copy, self.epoch, NOW).duplicate

    @rule()
    def new_leader(self):
        self.epoch += 1

    @rule()
    def roll(self):
        if self.log.active_segment.size:
            self.log.roll(NOW)

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = self.end

    @rule(part=st.floats(0, 1))
    def truncate(self, part):
        targets = [offset for offset in self.bounds if offset >= self.start] + [self.end]
        target = targets[int((len(targets) - 1) * part)]  # a batch is cut as a whole
        self.log.truncate_to(target, NOW)
        self._cut(target)

    def _cut(self, end):
        self.end = end
        self.rows = [row for row in self.rows if row[0] < end]
        self.bounds = [offset for offset in self.bounds if offset < end]
        self.epochs = [row for row in self.epochs if row[1] < end]
        self.sequences = [row for row in self.sequences if row[0] <= end] or [(0, 0)]
        self.flushed = min(self.flushed, end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part):
        self.log.update_high_watermark(self.end)
        self.start = self.log.delete_records(self.start + int((self.end - self.start) * part))
        self._trim_epochs()

    @precondition(lambda self: len(self.log.segments) > 2)
    @rule()
    def delete_oldest(self):
        self.log.update_high_watermark(self.end)
        second = self.log.segments[1].base_offset
        self.log.finish_deletion(self.log.delete_segments(self.log.segments[:1], "test", NOW))
        self.start = max(self.start, second)
        self._trim_epochs()

    def _trim_epochs(self):
        older = [row for row in self.epochs if row[1] <= self.start]
        if older:
            self.epochs = [(older[-1][0], self.start), *[row for row in self.epochs if row[1] > self.start]]

    @rule(clean=st.booleans())
    def reload(self, clean):
        if clean:
            self.log.close()
        else:
            self.log.close(clean=False)
        self.log = self.kit.open(
            CONFIG, had_clean_shutdown=clean, recovery_point=self.flushed, log_start_offset=self.start
        )
        assert not self.log.report.damaged
        assert self.log.report.bytes_truncated == 0

    @invariant()
    def agrees(self):
        log = self.log
        log.check_invariants()
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        # An epoch that begins at the log end has written nothing: a reload may forget it, as Kafka's does.
        assert [row for row in log.epochs.rows if row[1] < self.end] == [
            row for row in self.epochs if row[1] < self.end
        ]
        visible = [row for row in self.rows if row[0] >= self.start]
        assert contents(log) == [(offset, value) for offset, _, value in visible]
        for offset in {self.start, (self.start + self.end) // 2, self.end}:
            rest = [(o, value) for o, _, value in visible if o >= offset]
            assert contents(log, start=offset, max_bytes=1) == rest
        for stamp in (NOW - 501, NOW, NOW + 250):
            brute = next(((t, o) for o, t, _ in visible if t >= stamp), None)
            found = log.offset_for_timestamp(stamp)
            assert (found and (found.timestamp, found.offset)) == brute
        try:
            log.read(self.end + 1, 1, Isolation.LOG_END)
            raise AssertionError("an offset behind the end was read")
        except ApiError:
            pass


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
