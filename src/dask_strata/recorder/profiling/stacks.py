"""Rows of Dask's statistical profile, each cycle before Dask forgets it.

A worker samples its executor's threads every 10 ms, on its event loop, and starts a new tree of
frames every second. The recorder's thread reads the finished trees, which nothing changes any more.
At the start and end of the recording the worker starts a new tree early, so that no sample
from outside of the recording counts, and none of it is missing.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns, to_ns
from dask_strata.recorder.pipeline.redact import redact_path, redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.profiling.innermost import INNERMOST, count_innermost, stop_counting
from dask_strata.recorder.sources.dask_logs import LogFollower, UnexpectedLogError
from dask_strata.store.segments.frames import Batch

#: Most frames in a process; samples in others count for the frame that called them.
MAX_FRAMES = 10_000

#: Most rows of a cycle; samples beyond are counted as lost.
MAX_STACKS = 1_000

#: Longest name of a function, and path of a file.
_NAME, _PATH = 200, 500

#: Fields of the identifier of a frame in Dask: function, file and first line.
_FIELDS = 3


class Frames:
    """The frames that one process has recorded: numbers, and rows of new ones."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int | None, str], int] = {}
        self._rows: deque[dict[str, Any]] = deque()
        #: Visits of frames beyond the bound.
        self.beyond = 0

    def number(self, parent: int | None, node: dict[str, Any]) -> int | None:
        """Return the number of a frame, or that of its parent beyond the bound.

        Parameters
        ----------
        parent : int or None
            Number of the frame that called it.
        node : dict
            The frame in Dask's tree.
        """
        place = parent, node["identifier"]
        number = self._numbers.get(place)
        if number is None:
            if len(self._numbers) >= MAX_FRAMES:
                self.beyond += 1
                return parent
            number = self._numbers[place] = len(self._numbers) + 1
            row = {"time": now_ns(), "frame": number, "parent": parent, **_function(node)}
            self._rows.append(row)
        return number

    def take(self) -> list[dict[str, Any]]:
        """Return rows of the frames that are new since the last call."""
        return [self._rows.popleft() for _ in range(len(self._rows))]


def _function(node: dict[str, Any]) -> dict[str, Any]:
    """Return the function of a node: name, file and first line.

    >>> _function({"identifier": "load;/home/u/a.py;7", "description": {"line_number": 9}})
    {'function': 'load', 'module': '/home/u/a.py', 'line': 7}
    """
    name, *rest = node["identifier"].split(";", 1)
    file, _, line = rest[0].rpartition(";") if rest else ("", "", "")
    if not file:  # compiled code, which Dask describes instead
        name, file = node["description"].get("name", name), node["description"].get("filename", "")
    return {
        "function": clip(redact_text(str(name)), _NAME),
        "module": clip(redact_path(str(file)), _PATH) or None,
        "line": int(line) if line.isdecimal() else None,
    }


def innermost_counts(tree: dict[str, Any], frames: Frames) -> Iterator[tuple[int | None, int]]:
    """Yield innermost frames of a tree of Dask's profile, with their numbers of samples.

    Samples of a frame that are in none of its callees end there. Dask does not count the innermost
    frames of tasks: where `INNERMOST` is missing, they count for the frame that called them.

    Parameters
    ----------
    tree : dict
        The root of the tree.
    frames : Frames
        Gives the frames their numbers.
    """
    nodes: list[tuple[int | None, dict[str, Any]]] = [(None, tree)]
    while nodes:
        number, node = nodes.pop()
        rest = node["count"]
        for child in node["children"].values():
            own = child.get(INNERMOST, 0)
            rest -= child["count"] + own
            of_child = frames.number(number, child)
            if own:
                yield of_child, own
            nodes.append((of_child, child))
        if rest > 0:
            yield number, rest


class _Stacks(Source):
    """What the profiles of task threads and of event loops have in common.

    Parameters
    ----------
    engine : Engine
        The engine of the recording.
    frames : Frames
        The frames of the process.
    worker : str or None
        Address of the worker; None for a scheduler.
    """

    def __init__(self, engine: Engine, frames: Frames, worker: str | None) -> None:
        self._engine, self._frames, self._address = engine, frames, worker
        # The recorder's thread appends, and any thread that flushes takes.
        self._rows: deque[dict[str, Any]] = deque()
        self._start = now_ns()
        self._beyond = 0

    def _add(
        self, stop: int, kind: str, seconds: float, trees: Iterable[tuple[str | None, Any]]
    ) -> None:
        """Add the rows of a cycle; ``seconds`` is the interval between two samples."""
        counts: dict[tuple[str | None, int | None], int] = {}
        for prefix, tree in trees:
            for frame, n in innermost_counts(tree, self._frames):
                if len(counts) < MAX_STACKS or (prefix, frame) in counts:
                    counts[prefix, frame] = counts.get((prefix, frame), 0) + n
                else:
                    self._beyond += n
        self._rows.extend(
            {
                "start": self._start,
                "stop": stop,
                "worker": self._address,
                "kind": kind,
                "prefix": prefix,
                "frame": frame,
                "n_samples": n,
                "estimated_seconds": n * seconds,
            }
            for (prefix, frame), n in counts.items()
        )
        self._start = stop

    def rows(self) -> Iterable[Batch]:
        """Return the stacks and new frames since the last call."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if not rows:
            return
        yield Batch.of_rows("stack_frames", self._frames.take())
        yield Batch.of_rows("stacks", rows)

    def finish(self) -> None:
        """Add the last cycle, and the samples beyond the bounds."""
        self.sample()
        frames, self._frames.beyond = self._frames.beyond, 0
        for n, reason in (
            (self._beyond, f"samples of stacks beyond {MAX_STACKS:,} in a cycle"),
            (frames, f"frames beyond {MAX_FRAMES:,}: their samples count for their callers"),
        ):
            if n:
                add_loss(self._engine, reason, n)


class TaskStacks(_Stacks):
    """Records the stacks of a worker's task threads. Create it on the worker's event loop.

    Parameters
    ----------
    worker : distributed.Worker
        The worker; without rows if its profile is disabled.
    engine : Engine
        The engine of the recording.
    frames : Frames
        The frames of the process.
    """

    def __init__(self, worker: Any, engine: Engine, frames: Frames) -> None:
        super().__init__(engine, frames, worker.address)
        self._worker = worker
        self._follower: LogFollower | None = None
        self._counting = self._removed = False
        sampling = worker.periodic_callbacks.get("profile")
        if sampling is None:
            return
        self._interval = sampling.callback_time / 1e3
        try:
            worker.cycle_profile()
            self._follower = LogFollower(worker, "profile_keys_history")
        except (AttributeError, UnexpectedLogError) as error:
            add_loss(engine, f"this version of Dask has another profile: {error}")
            return
        self._counting = count_innermost()
        if not self._counting:
            add_loss(engine, "innermost frames: this version of Dask has no profile.process")

    def sample(self) -> None:
        """Add the rows of finished cycles."""
        if self._follower is None:
            return
        for stop, trees in self._follower.take():
            # Dask shifts its times to the scheduler's clock.
            own = to_ns(stop - self._worker.scheduler_delay)
            self._add(own, "task", self._interval, trees.items())

    def remove(self) -> None:
        """Finish the cycle under way, and restore Dask's objects.

        Cycles that were not read yet are kept for `finish`.
        """
        if self._counting:
            self._counting = False
            stop_counting()
        if self._follower is not None and not self._removed:
            self._removed = True
            try:
                self._worker.cycle_profile()
            finally:
                self._follower.remove()


#: The source that records a loop's profile, by loop and run: servers of a process share a loop.
_recorded: weakref.WeakKeyDictionary[Any, dict[str, LoopStacks]] = weakref.WeakKeyDictionary()


class LoopStacks(_Stacks):
    """Records the stacks of a server's event loop, of which Dask takes one sample in each cycle.

    Parameters
    ----------
    server : distributed.Scheduler or distributed.Worker
        The server. Without rows where Dask has no such profile, as under Python 3.11.
    engine : Engine
        The engine of the recording.
    frames : Frames
        The frames of the process.
    worker : str, optional
        Address of the server, if it is a worker.
    """

    def __init__(
        self, server: Any, engine: Engine, frames: Frames, worker: str | None = None
    ) -> None:
        super().__init__(engine, frames, worker)
        self._loop = server.io_loop
        self._last = time.time()
        #: Times of two samples and the tree of the second, which have no rows yet.
        self._taken: deque[tuple[float, float, dict[str, Any]]] = deque()
        self._taking = threading.Lock()
        _recorded.setdefault(self._loop, {}).setdefault(engine.run_id, self)

    def sample(self) -> None:
        """Add the samples since the last call, unless another server of the loop does."""
        with self._taking:
            self._take()
        for _ in range(len(self._taken)):
            # The only sample of the cycle stands for the time since the sample before.
            previous, at, tree = self._taken.popleft()
            self._start = to_ns(previous)
            self._add(to_ns(at), "event loop", at - previous, [(None, tree)])

    def _take(self) -> None:
        entries = self._new_entries()
        if not entries:
            return
        previous, self._last = self._last, entries[-1][0]
        if _recorded.get(self._loop, {}).setdefault(self._engine.run_id, self) is not self:
            return
        for at, tree in entries:
            self._taken.append((previous, at, tree))
            previous = at

    def _new_entries(self) -> list[tuple[float, dict[str, Any]]]:
        from distributed import profile

        log = getattr(self._loop, "profile", None)
        if not log:
            return []
        found = []
        with profile.lock:  # Dask's thread adds entries, and fills them, under this lock
            for at, tree in reversed(log):
                if at <= self._last:
                    break
                found.append((at, tree))
        return found[::-1]

    def remove(self) -> None:
        """Keep the last samples for `finish`, and leave the loop's profile to other servers."""
        with self._taking:
            self._take()
            of_loop = _recorded.get(self._loop, {})
            if of_loop.get(self._engine.run_id) is self:
                del of_loop[self._engine.run_id]
            self._last = float("inf")


def add_loss(engine: Engine, reason: str, count: int | None = None) -> None:
    """Record that a part of Dask's profile is missing.

    Parameters
    ----------
    engine : Engine
        The engine of the recording.
    reason : str
        The cause.
    count : int, optional
        Number of samples or frames.
    """
    row = {"time": now_ns(), "what": "stacks", "reason": reason, "where": engine.process}
    engine.add("losses", **row, count=count)
