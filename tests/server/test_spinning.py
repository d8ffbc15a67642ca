"""A loop that does not sleep during a conversation, and does otherwise."""

import os
import select
from pathlib import Path

import pytest

from stratalog.node.config import BrokerConfig
from stratalog.server.clock import RealClock
from stratalog.server.loop import _QUICK_TURNS, Limits, Loop
from stratalog.server.process import _limits

EVENT = (3, select.EPOLLIN)


class Epoll:
    """Gives what it was told, one answer a call, then nothing; remembers for how long it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def poll(self, timeout, _):
        self.asked.append(timeout)
        return self.answers.pop(0) if self.answers else []


@pytest.fixture
def loop():
    made = Loop(clock=RealClock(), limits_=Limits(spin_us=50_000))  # long against the pauses of a busy machine
    real = made._epoll
    yield made
    made._epoll = real
    made._epoll.close()
    os.close(made._wake_fd)


def test_a_conversation_is_waited_for_without_sleep(loop):
    loop._epoll = epoll = Epoll(*[[EVENT]] * _QUICK_TURNS, [], [], [EVENT])
    for _ in range(_QUICK_TURNS):
        assert loop._wait(1.0) == [EVENT]
    assert epoll.asked == [1.0] * _QUICK_TURNS, "a few quick answers are no conversation yet"
    assert loop._wait(1.0) == [EVENT]
    assert epoll.asked[_QUICK_TURNS:] == [0.0] * 3


def test_who_waits_in_vain_sleeps_and_goes_on_sleeping(loop):
    loop.limits.spin_us = 200
    loop._quick_turns = _QUICK_TURNS
    loop._epoll = epoll = Epoll()
    assert loop._wait(1.0) == []
    assert epoll.asked[-1] == 1.0 and set(epoll.asked[:-1]) == {0.0}
    epoll.asked.clear()
    assert loop._wait(1.0) == [] and epoll.asked == [1.0]


def test_a_deadline_that_comes_sooner_is_not_spun_over(loop):
    loop._quick_turns = _QUICK_TURNS
    loop.limits.spin_us = 10_000_000
    loop._epoll = Epoll()
    assert loop._wait(0.001) == []


def test_without_a_second_core_or_when_it_is_switched_off_it_always_sleeps(loop, monkeypatch):
    loop.limits.spin_us = 0
    loop._quick_turns = _QUICK_TURNS
    loop._epoll = epoll = Epoll([EVENT])
    assert loop._wait(1.0) == [EVENT] and epoll.asked == [1.0]
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(Path("data")), "node.id": "1"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert _limits(BrokerConfig(config), Limits()).spin_us == 50
    assert _limits(BrokerConfig({**config, "stratalog.spin.us": "0"}), Limits()).spin_us == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert _limits(BrokerConfig(config), Limits()).spin_us == 0
