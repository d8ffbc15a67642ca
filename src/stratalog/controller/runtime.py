"""The controller on its log: append what handlers decide, publish and answer what is committed.

    submit -> handler makes records -> replayed on the head -> appended -> ... flushed ... -> image published -> reply

Two images: the head (`controller.image`), on which the next handler decides, and `image`, the committed one, which
brokers read.  Replies and deltas wait in one queue, in the log's order; what has no records waits for those before
it, so that nobody reads an answer out of a future that may not come.  Loop only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.base.types import Millis
from stratalog.controller.controller import Controller, Result
from stratalog.metadata import serde
from stratalog.metadata.image import Delta, MetadataImage

T = TypeVar("T")


class MetadataLog(Protocol):
    """The log under the controller (`raft.quorum.Quorum`)."""

    on_commit: Callable[[int], None]
    """Called on the loop with the new high watermark, never inside `append`."""

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def commits_by_itself(self) -> bool: ...

    def commit(self) -> None:
        """Commit what was appended, where the log does not do so by itself."""
        ...

    def append(self, values: Sequence[bytes], now: Millis) -> int:
        """Append records as one batch; returns the offset of the last one."""
        ...


class Runtime:
    """Runs handlers one after the other and keeps their answers until the log has them."""

    def __init__(self, controller: Controller, log: MetadataLog, image: MetadataImage) -> None:
        """`image` is the replay of the log as it stands; all of it is committed."""
        self.controller = controller
        self.image = image
        self.on_image: Callable[[Delta], None] = lambda _: None
        """Called on the loop for each committed change, in the log's order: topics to open, configurations to apply."""
        self._log = log
        self._waiting: deque[tuple[int, Delta | None, Callable[[Any], None] | None, Any]] = deque()
        self._publishing = False
        controller.image = image
        controller.next_offset = log.end_offset
        log.on_commit = self._committed

    def submit(self, handle: Callable[[Controller], Result[T]], reply: Callable[[T], None] | None, now: Millis) -> None:
        """Run a handler; `reply(response)` is called once its records, and all before them, are committed: perhaps
        at once, inside this call, when nothing is pending.  An `ApiError` of the handler passes through; a log that
        takes no records (a full disk) is one too, KAFKA_STORAGE_ERROR, and nothing has changed then."""
        result = handle(self.controller)
        if result.records:
            try:
                delta = self._append(result.records, now)
            except OSError as error:
                text = f"the metadata log cannot be written: {error.strerror}"
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
            self._waiting.append((delta.image.offset, delta, reply, result.response))
            if not self._log.commits_by_itself:
                self._log.commit()
        elif not self._waiting:
            if reply is not None:
                reply(result.response)
        else:
            self._waiting.append((self._waiting[-1][0], None, reply, result.response))

    def _append(self, records: Sequence[Any], now: Millis) -> Delta:
        controller = self.controller
        before = self._log.end_offset
        assert before == controller.next_offset, "somebody else appended to the metadata log"
        offset = before + len(records) - 1
        # Replayed first: records that do not apply to the head are a bug, and must not reach the log.
        delta = controller.image.apply(records, offset=offset, epoch=self._log.epoch)
        version = delta.image.metadata_version
        last = self._log.append([serde.encode(record, version) for record in records], now)
        assert last == offset, f"the batch ends at {last}, not at {offset}"
        controller.image = delta.image
        controller.next_offset = offset + 1
        return delta

    def _committed(self, high_watermark: int) -> None:
        """Publish and answer.  A reply may submit again; what that commits is published by the outer call, in order."""
        if self._publishing:
            return
        self._publishing = True
        try:
            waiting = self._waiting
            while waiting and waiting[0][0] < self._log.high_watermark:
                _, delta, reply, response = waiting.popleft()
                if delta is not None:
                    self.image = delta.image
                    self.on_image(delta)
                if reply is not None:
                    reply(response)
        finally:
            self._publishing = False
