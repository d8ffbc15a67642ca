"""Timers: order, cancelling, and a heap that does not grow with cancelled ones."""

from __future__ import annotations

from stratalog.node.timers import Timers


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    timers, fired = Timers(), []
    for name, deadline in (("c", 30), ("a", 10), ("b", 10), ("d", 40)):
        timers.at(deadline, lambda now, name=name: fired.append((name, now)))
    assert timers.deadline() == 10
    timers.fire(30)
    assert fired == [("a", 30), ("b", 30), ("c", 30)]
    assert timers.deadline() == 40 and len(timers) == 1


def test_a_cancelled_timer_does_not_fire_and_a_fired_one_can_be_cancelled() -> None:
    timers, fired = Timers(), []
    first = timers.at(10, fired.append)
    first.cancel()
    first.cancel()
    second = timers.at(10, fired.append)
    timers.fire(10)
    second.cancel()
    assert fired == [10] and len(timers) == 0 and timers.deadline() is None
    assert not first.pending and not second.pending


def test_a_timer_may_cancel_another_one_of_the_same_moment() -> None:
    timers, fired = Timers(), []
    others = []
    timers.at(10, lambda now: others[0].cancel())
    others.append(timers.at(10, fired.append))
    timers.fire(10)
    assert fired == [] and len(timers) == 0


def test_a_timer_added_by_a_timer_waits_for_the_next_turn() -> None:
    timers, fired = Timers(), []
    timers.at(10, lambda now: timers.at(5, fired.append))
    timers.fire(10)
    assert fired == []
    timers.fire(10)
    assert fired == [10]


def test_ten_thousand_parked_and_answered_fetches_leave_a_small_heap() -> None:
    timers = Timers()
    keep = [timers.at(1_000_000, lambda now: None) for _ in range(10)]
    for number in range(10_000):
        timers.at(number + 500, lambda now: None).cancel()
    assert len(timers) == 10 == len(keep)
    assert len(timers._heap) < 200
