"""Named timers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratalog.rsm.timers import Timers


def test_setting_again_replaces():
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 20)
    assert timers.deadline() == 20
    assert list(timers.due(10)) == []
    assert list(timers.due(20)) == ["a"]
    assert timers.deadline() is None


def test_equal_moments_come_in_the_order_of_setting():
    timers: Timers[str] = Timers()
    for key in "cab":
        timers.set(key, 5)
    assert list(timers.due(5)) == ["c", "a", "b"]


def test_heartbeats_do_not_grow_the_heap():
    timers: Timers[int] = Timers()
    for n in range(10_000):
        timers.set(n % 10, n)
    assert len(timers._heap) < 200
    assert len(timers) == 10


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("due"), st.integers(0, 50), st.just(0)),
        )
    )
)
def test_timers_do_what_a_dict_does(operations):
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for kind, a, b in operations:
        if kind == "set":
            timers.set(a, b)
            model[a] = b
        elif kind == "cancel":
            timers.cancel(a)
            model.pop(a, None)
        else:
            due = list(timers.due(a))
            assert sorted(due) == sorted(key for key, when in model.items() if when <= a)
            for key in due:
                del model[key]
        assert timers.deadline() == min(model.values(), default=None)
