"""The state machine that keeps retention, truncation, moves, deletion and compaction of one partition apart.

    state         event    next            meaning
    -             start    in progress     a cleaner has the partition
    in progress   done     -
    in progress   pause    aborted(1)      the cleaner is told to stop; its result will not be taken
    aborted(n)    pause    aborted(n+1)
    aborted(n)    resume   aborted(n-1)
    aborted(n)    done     paused(n)       - where n is 0
    -             pause    paused(1)
    paused(n)     pause    paused(n+1)
    paused(n)     resume   paused(n-1)     - where n is 1

Everything happens on the loop, where segments are swapped too, so from `pause` on no swap of that partition happens:
whoever paused need not wait for the cleaner to notice.  Only a new cleaning waits for it (`aborted`).  Loop only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Key = tuple[str, int]

IN_PROGRESS: Final = "in progress"
ABORTED: Final = "aborted"
PAUSED: Final = "paused"


class State(NamedTuple):
    """`pauses` is 0 while in progress."""

    name: str
    pauses: int = 0


class States:
    """The state of every partition that has one."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[Key, State] = {}

    def of(self, key: Key) -> State | None:
        return self._states.get(key)

    def is_free(self, key: Key) -> bool:
        """Whether a cleaner may take it."""
        return key not in self._states

    def is_cleaned(self, key: Key) -> bool:
        """Whether a cleaner has it and its result will be taken."""
        state = self._states.get(key)
        return state is not None and state.name == IN_PROGRESS

    def start(self, key: Key) -> None:
        assert key not in self._states, f"{key} is {self._states[key]}"
        self._states[key] = State(IN_PROGRESS)

    def done(self, key: Key) -> None:
        state = self._states[key]
        assert state.name != PAUSED, f"{key} is not being cleaned"
        if state.pauses:
            self._states[key] = State(PAUSED, state.pauses)
        else:
            del self._states[key]

    def pause(self, key: Key) -> bool:
        """True when a cleaner has to be told to stop."""
        state = self._states.get(key)
        if state is None:
            self._states[key] = State(PAUSED, 1)
        elif state.name == IN_PROGRESS:
            self._states[key] = State(ABORTED, 1)
            return True
        else:
            self._states[key] = State(state.name, state.pauses + 1)
        return False

    def resume(self, key: Key) -> None:
        state = self._states.get(key)
        assert state is not None and state.pauses, f"{key} is not paused"
        if state.name == PAUSED and state.pauses == 1:
            del self._states[key]
        else:
            self._states[key] = State(state.name, state.pauses - 1)

    def forget(self, key: Key) -> None:
        """The partition is gone, and no cleaner has it."""
        self._states.pop(key, None)

    def items(self) -> list[tuple[Key, State]]:
        return list(self._states.items())
