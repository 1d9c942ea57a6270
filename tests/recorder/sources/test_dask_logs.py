"""Followers of Dask's logs read each entry once and leave Dask's own view unchanged."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.recorder.sources.dask_logs import (
    FollowedLog,
    LogFollower,
    MessageHook,
    UnexpectedLogError,
    follow,
)


def owner(maxlen: int | None = 5, entries: int = 0) -> SimpleNamespace:
    """Return an object with a bounded log like Dask's."""
    return SimpleNamespace(log=deque(range(entries), maxlen=maxlen))


@given(
    st.none() | st.integers(0, 7),
    st.integers(0, 10),
    st.lists(st.tuples(st.sampled_from(["append", "take one", "take two"]), st.integers(1, 9))),
)
def test_every_follower_sees_each_entry_once(maxlen, before, steps) -> None:
    """Each follower gets all entries once and in order, however appends and reads alternate."""
    dask = owner(maxlen, before)
    plain = deque(dask.log, maxlen=maxlen)
    one, two = LogFollower(dask, "log"), LogFollower(dask, "log")
    seen: dict[str, list[int]] = {"take one": [], "take two": []}
    appended = []
    for step, n in steps:
        if step == "append":
            for _ in range(n):
                appended.append(len(appended) + 100)
                dask.log.append(appended[-1])
                plain.append(appended[-1])
        else:
            seen[step] += (one if step == "take one" else two).take()
        if maxlen:
            assert list(dask.log)[-len(plain) :] == list(plain)
    seen["take one"] += one.take()
    seen["take two"] += two.take()
    assert seen == {"take one": appended, "take two": appended}
    one.remove()
    two.remove()
    assert type(dask.log) is deque
    assert dask.log.maxlen == maxlen
    assert dask.log == plain


@given(st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_a_removed_follower_returns_the_entries_up_to_its_removal_only(before, later, look) -> None:
    """This also holds if another follower goes on reading the log."""
    dask = owner(5)
    one, two = LogFollower(dask, "log"), LogFollower(dask, "log")
    dask.log.extend(range(before))
    one.remove()
    dask.log.extend(range(100, 100 + later))
    two.take()
    if look:
        assert one.peek() == list(range(before))
    assert one.take() == list(range(before))
    dask.log.append(None)
    assert one.take() == []
    assert two.take() == [None]


def test_a_log_is_trimmed_once_all_followers_have_read_it() -> None:
    """The log is trimmed to Dask's bound after the last follower has read it, not before."""
    dask = owner(5)
    one, two = LogFollower(dask, "log"), LogFollower(dask, "log")
    dask.log.extend(range(100))
    one.take()
    assert len(dask.log) == 100
    two.take()
    assert list(dask.log) == [95, 96, 97, 98, 99]


def test_appending_and_reading_at_once_loses_nothing() -> None:
    """One thread appends, one reads and trims, one iterates like Dask's stories: none fails."""
    dask = owner(1000)
    follower = LogFollower(dask, "log")
    n, done, seen, failures = 100_000, threading.Event(), [], []

    def read() -> None:
        while not done.is_set():
            seen.extend(follower.take())

    def look() -> None:
        try:
            while not done.is_set():
                list(dask.log)
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=read), threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    append = dask.log.append
    for i in range(n):
        append(i)
    done.set()
    for thread in threads:
        thread.join()
    seen.extend(follower.take())
    assert seen == list(range(n))
    assert not failures


@pytest.mark.parametrize("log", [[], None, (), type("Deque", (deque,), {})()])
def test_a_log_that_is_not_as_expected_is_refused_and_left_alone(log) -> None:
    """An attribute that is not a plain deque is refused, and the other logs are restored."""
    strange = SimpleNamespace(log=log)
    dask = owner()
    plain = dask.log
    with pytest.raises(UnexpectedLogError):
        follow((dask, "log"), (strange, "log"))
    assert strange.log is log
    assert type(dask.log) is deque
    assert dask.log == plain
    assert not isinstance(dask.log, FollowedLog)


@pytest.mark.parametrize("first_removed", [0, 1])
def test_message_hooks_can_be_removed_in_any_order(first_removed: int) -> None:
    """Two hooks on a handler get each message, in whatever order they are removed."""
    calls = []

    def original(**message: int) -> int:
        calls.append(message)
        return 7

    handlers = {"op": original}
    seen: list[list[dict]] = [[], []]
    hooks = [MessageHook(handlers, "op", s.append) for s in seen]
    assert handlers["op"](key=1) == 7
    hooks[first_removed].remove()
    handlers["op"](key=2)
    hooks[1 - first_removed].remove()
    assert handlers["op"] is original
    assert [len(s) for s in seen] == ([1, 2] if first_removed == 0 else [2, 1])
    assert calls == [{"key": 1}, {"key": 2}]


def test_a_missing_handler_is_refused() -> None:
    """A hook on an operation without a handler raises."""
    with pytest.raises(UnexpectedLogError):
        MessageHook({}, "op", print)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_followed_log_can_be_copied_and_sent(duplicate) -> None:
    """A copy or pickle of a followed log is a bounded deque like Dask's."""
    dask = owner(5)
    follower = LogFollower(dask, "log")
    dask.log.extend(range(20))
    got = duplicate(dask.log)
    assert type(got) is deque
    assert got == deque(range(15, 20))
    assert got.maxlen == 5
    assert follower.take() == list(range(20))
