"""Injecting faults into a cluster."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.clock import Clock
from tests.chaos.cluster import Cluster
from tests.chaos.disk import filled, read_only
from tests.chaos.facts import alive
from tests.chaos.plan import Injection

#: Largest step by which a clock is set back.
BACK_SECONDS = 20


def _one(choice: float, candidates: Sequence[Any]) -> Any:
    return candidates[int(choice * len(candidates))] if candidates else None


class Injector:
    """Inject faults, and keep a list of them.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    clock : Clock, optional
        The clock of one of its hosts.

    Attributes
    ----------
    done : list of str
        Injected faults, in words.
    """

    def __init__(self, cluster: Cluster, clock: Clock | None) -> None:
        self._cluster, self._clock = cluster, clock
        self.done: list[str] = []

    def inject(self, injection: Injection) -> None:
        """Inject one fault and return when it is over."""
        faults: dict[str, Callable[[Injection], str]] = {
            "kill-worker": self._kill_worker,
            "kill-nanny": self._kill_nanny,
            "kill-scheduler": lambda _: self._kill(self._cluster.scheduler.pid),
            "kill-client": lambda _: self._kill(self._cluster.client.pid),
            "stop-worker": lambda i: self._stop(_one(i.choice, self._cluster.live_workers()), i),
            "stop-nanny": lambda i: self._stop(_one(i.choice, self._cluster.live_nannies()), i),
            "stop-scheduler": lambda i: self._stop(self._cluster.scheduler.pid, i),
            "stop-client": lambda i: self._stop(self._cluster.client.pid, i),
            "memory-kill": lambda _: self._order("hog"),
            "restart": lambda _: self._order("restart"),
            "scale-up": self._scale_up,
            "scale-down": lambda _: self._order("retire"),
            "network-cut": lambda i: self._line("cut", i.seconds * (4 if i.choice < 0.25 else 1)),
            "network-delay": lambda i: self._line(f"delay {0.01 + 0.2 * i.choice:.3f}", i.seconds),
            "disk-full": self._fill,
            "folder-read-only": self._read_only,
            "folder-removed": self._remove,
            "clock-jump": self._jump,
        }
        self.done.append(f"{injection.kind}: {faults[injection.kind](injection)}")

    def _kill(self, pid: int | None) -> str:
        if pid is None:
            return "no such process"
        self._cluster.lifetimes.kill(pid)
        self._cluster.wait(lambda: not alive(pid), f"the end of {pid}")
        return f"pid {pid}"

    def _kill_worker(self, injection: Injection) -> str:
        return self._kill(_one(injection.choice, self._cluster.live_workers()))

    def _kill_nanny(self, injection: Injection) -> str:
        return self._kill(_one(injection.choice, self._cluster.live_nannies()))

    def _stop(self, pid: int | None, injection: Injection) -> str:
        if pid is None:
            return "no such process"
        self._cluster.lifetimes.stop(pid, injection.seconds)
        return f"pid {pid} for {injection.seconds:.1f} s"

    def _order(self, order: str) -> str:
        self._cluster.order(order)
        return "by the client"

    def _scale_up(self, injection: Injection) -> str:
        host = "b" if self._cluster.network and injection.choice < 0.5 else "a"
        self._cluster.add_worker(host)
        return f"on host {host}"

    def _line(self, state: str, seconds: float) -> str:
        assert self._cluster.network is not None
        self._cluster.network.set(state)
        try:
            time.sleep(seconds)
        finally:
            self._cluster.network.set("open")
        return f"{state} for {seconds:.1f} s"

    def _fill(self, injection: Injection) -> str:
        began = time.monotonic_ns()
        with filled(self._cluster.runs):
            time.sleep(injection.seconds)
        self._cluster.full.append((began, time.monotonic_ns()))
        return f"for {injection.seconds:.1f} s"

    def _read_only(self, injection: Injection) -> str:
        """Make the run's folder read-only while a new worker needs a new file in it."""
        run = self._run_folder()
        if run is None:
            return "no run"
        with read_only(run):
            killed = self._kill_worker(injection)
            time.sleep(injection.seconds)
        return f"for {injection.seconds:.1f} s, while a worker is killed: {killed}"

    def _remove(self, _: Injection) -> str:
        run = self._run_folder()
        if run is None:
            return "no run"
        # Processes may write new files while the folder is being removed: repeat.
        while run.exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(run)
        return run.name

    def _run_folder(self) -> Path | None:
        """Return the folder of the run; None in a trial without a recorder."""
        return next((path.parent for path in self._cluster.runs.glob("*/run.json")), None)

    def _jump(self, injection: Injection) -> str:
        assert self._clock is not None
        # Set the clock back a little only: Tornado's periodic callbacks, and with them Dask's
        # heartbeats and its search for missing data, pause for the length of the step.
        seconds = (injection.choice - 0.5) * (7200 if injection.choice > 0.5 else 2 * BACK_SECONDS)
        self._clock.set(seconds)
        return f"{seconds:+.0f} s from the true time"
