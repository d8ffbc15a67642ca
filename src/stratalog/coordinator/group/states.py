"""The states of a classic group, as a table.

```
              first member joins                      all have joined, or the time is up
    EMPTY ------------------------> PREPARING_REBALANCE -----------------> COMPLETING_REBALANCE
      ^                               |    ^    ^                             |          |
      +--- nobody has joined ---------+    |    +---- a member comes, goes, --+          | the leader's assignment
                                           |          or never syncs                     | is in the log
                                           +------------------------------- STABLE <-----+
    any --deleted--> DEAD
```
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The value is what clients and tools see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}
CAN_REBALANCE: Final = frozenset({EMPTY, COMPLETING, STABLE})
"""Where a change of membership starts a rebalance; while one is being prepared it only joins in."""
