"""The real pool: a few threads for what must not happen on the loop (fsync, recovery, cold reads, conversion).

`submit` and `run_done` belong to the loop's thread; `work` runs on a thread of the pool, and `done(result, error)`
runs on the loop again, from `run_done`.  Threads start with the first work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Work = Callable[[], Any]
Done = Callable[[Any, BaseException | None], None]


class ThreadPool:
    """`base.ports.Pool` on daemon threads."""

    def __init__(self, *, threads: int, name: str, wake: Callable[[], None]) -> None:
        self._limit = threads
        self._name = name
        self._wake = wake
        self._tasks: SimpleQueue[tuple[str, Work, Done] | None] = SimpleQueue()
        self._results: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._threads: list[threading.Thread] = []
        self._outstanding = 0

    @property
    def outstanding(self) -> int:
        """Work that was submitted and whose `done` has not run."""
        return self._outstanding

    def submit(self, name: str, work: Work, done: Done) -> None:
        self._outstanding += 1
        if len(self._threads) < self._limit and self._outstanding > len(self._threads):
            number = len(self._threads)
            thread = threading.Thread(target=self._run, name=f"{self._name}-pool-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put((name, work, done))

    def run_done(self) -> None:
        """Run the callbacks of what has finished, on the calling thread: the loop's."""
        results = self._results
        while results:
            done, result, error = results.popleft()
            self._outstanding -= 1
            done(result, error)

    def close(self) -> None:
        """Let the threads finish what they have and end.  Results that nobody ran are dropped."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            _, work, done = task
            try:
                result, error = work(), None
            except BaseException as failure:  # noqa: BLE001 - carried to the loop, where it is looked at
                result, error = None, failure
            self._results.append((done, result, error))
            self._wake()
