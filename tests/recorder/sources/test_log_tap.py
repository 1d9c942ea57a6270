"""Following Dask's logs: each entry once, Dask's own view untouched, nothing left behind."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.recorder.sources.log_tap import (
    FollowedLog,
    HandlerTap,
    LogTap,
    UnexpectedLogError,
    follow,
)


def owner(maxlen: int | None = 5, entries: int = 0) -> SimpleNamespace:
    """Something with a log, as Dask has it."""
    return SimpleNamespace(log=deque(range(entries), maxlen=maxlen))


@given(
    st.none() | st.integers(0, 7),
    st.integers(0, 10),
    st.lists(st.tuples(st.sampled_from(["append", "take one", "take two"]), st.integers(1, 9))),
)
def test_every_follower_sees_each_entry_once(maxlen, before, steps) -> None:
    """Whatever is appended and read in whatever order, each follower gets all, once, in order."""
    dask = owner(maxlen, before)
    plain = deque(dask.log, maxlen=maxlen)
    one, two = LogTap(dask, "log"), LogTap(dask, "log")
    seen: dict[str, list[int]] = {"take one": [], "take two": []}
    appended = []
    for what, n in steps:
        if what == "append":
            for _ in range(n):
                appended.append(len(appended) + 100)
                dask.log.append(appended[-1])
                plain.append(appended[-1])
        else:
            seen[what] += (one if what == "take one" else two).take()
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
def test_who_is_removed_sees_what_was_logged_before_that_and_no_more(before, later, look) -> None:
    """Also where another follows the log on, and takes what it has."""
    dask = owner(5)
    one, two = LogTap(dask, "log"), LogTap(dask, "log")
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


def test_an_unread_log_is_trimmed_when_everyone_has_read_it() -> None:
    """The log is as long as Dask wants it once all followers have read it, not before."""
    dask = owner(5)
    one, two = LogTap(dask, "log"), LogTap(dask, "log")
    dask.log.extend(range(100))
    one.take()
    assert len(dask.log) == 100
    two.take()
    assert list(dask.log) == [95, 96, 97, 98, 99]


def test_appending_and_reading_at_once_loses_nothing() -> None:
    """One thread appends, one reads and trims, one iterates as Dask's stories do: nobody fails."""
    dask = owner(1000)
    tap = LogTap(dask, "log")
    n, done, seen, failures = 100_000, threading.Event(), [], []

    def read() -> None:
        while not done.is_set():
            seen.extend(tap.take())

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
    seen.extend(tap.take())
    assert seen == list(range(n))
    assert not failures


@pytest.mark.parametrize("log", [[], None, (), type("Deque", (deque,), {})()])
def test_a_log_that_is_not_as_expected_is_refused_and_left_alone(log) -> None:
    """An attribute that is no plain deque is refused, and others are given back."""
    strange = SimpleNamespace(log=log)
    dask = owner()
    plain = dask.log
    with pytest.raises(UnexpectedLogError):
        follow((dask, "log"), (strange, "log"))
    assert strange.log is log
    assert type(dask.log) is deque
    assert dask.log == plain
    assert not isinstance(dask.log, FollowedLog)


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_handler_taps_can_be_removed_in_any_order(first_to_go: int) -> None:
    """Two taps on a handler see each message, return its answer, and can go in any order."""
    calls = []

    def original(**message: int) -> int:
        calls.append(message)
        return 7

    handlers = {"op": original}
    seen: list[list[dict]] = [[], []]
    taps = [HandlerTap(handlers, "op", s.append) for s in seen]
    assert handlers["op"](key=1) == 7
    taps[first_to_go].remove()
    handlers["op"](key=2)
    taps[1 - first_to_go].remove()
    assert handlers["op"] is original
    assert [len(s) for s in seen] == ([1, 2] if first_to_go == 0 else [2, 1])
    assert calls == [{"key": 1}, {"key": 2}]


def test_a_missing_handler_is_refused() -> None:
    """There is nothing to tap where Dask has no such handler."""
    with pytest.raises(UnexpectedLogError):
        HandlerTap({}, "op", print)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_followed_log_can_be_copied_and_sent(duplicate) -> None:
    """Whoever copies or pickles a log while it is followed gets a deque as Dask has it."""
    dask = owner(5)
    tap = LogTap(dask, "log")
    dask.log.extend(range(20))
    got = duplicate(dask.log)
    assert type(got) is deque
    assert got == deque(range(15, 20))
    assert got.maxlen == 5
    assert tap.take() == list(range(20))
