"""A scheduler, workers with nannies and a client, each a process, and when each of them ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.clock import Clock
from tests.chaos.facts import Fact, alive, children, read_facts
from tests.chaos.mutants import VARIABLE
from tests.chaos.network import A, B, Network

ROOT = Path(__file__).parents[2]
WORKERS = 3
#: Generous, as it detects hangs only: everything is slow on a loaded machine.
HANG_SECONDS = 120
_PRELOADS = ("DASK_DISTRIBUTED__SCHEDULER__PRELOAD", "DASK_DISTRIBUTED__CLIENT__PRELOAD")
_REMOVED = ("DASK_DASK_STRATA", "DASK_DISTRIBUTED", "FAKETIME", "LD_PRELOAD")
_POLL_SECONDS = 0.03


class TrialError(RuntimeError):
    """A trial could not be run, so that it has no result."""


class Lifetimes:
    """When processes were first and last observed alive, and when they were stopped."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.stopped: dict[int, list[tuple[int, int]]] = {}
        self.killed: dict[int, int] = {}
        self.parent: dict[int, int] = {}
        self.late_seconds = 0.0
        self._parents: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def watch(self, pid: int) -> None:
        """Watch a process and its children, also future ones."""
        self._parents.append(pid)

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_POLL_SECONDS):
            now = time.monotonic()
            # The delay of this thread indicates the delays of others on a loaded machine.
            self.late_seconds = max(self.late_seconds, now - before - _POLL_SECONDS)
            before = now
            for parent in list(self._parents):
                for pid in (parent, *children(parent)):
                    moment = time.monotonic_ns()
                    if alive(pid):
                        self.first.setdefault(pid, moment)
                        self.last[pid] = moment
                        self.parent[pid] = parent

    def kill(self, pid: int) -> None:
        """Kill a process, and record the time just before."""
        with contextlib.suppress(ProcessLookupError):
            moment = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            self.killed.setdefault(pid, moment)

    def stop(self, pid: int, seconds: float) -> None:
        """Stop a process for some seconds."""
        began = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.stopped.setdefault(pid, []).append((began, time.monotonic_ns()))

    def seconds_left(self, pid: int, moment: int) -> float | None:
        """Return how long a process ran after a moment, in seconds; None if it may still run."""
        death = self.killed.get(pid, None if alive(pid) else self.last.get(pid))
        if death is None:
            return None
        paused = sum(
            max(0, min(death, stop) - max(moment, start))
            for start, stop in self.stopped.get(pid, ())
        )
        return (death - moment - paused) / 1e9


@dataclass(frozen=True)
class Hosts:
    """Hosts of a cluster.

    Attributes
    ----------
    network : Network, optional
        Two hosts: scheduler and client on a, workers on both. One host by default.
    hidden : bool
        Whether the folder of runs is invisible on host b.
    clock : Clock, optional
        Clock of the last worker and its nanny.
    """

    network: Network | None = None
    hidden: bool = False
    clock: Clock | None = None


class Cluster:
    """A cluster on one host or two, and its client; stop it with `close`.

    Parameters
    ----------
    folder : Path
        Folder for all files; its subfolder `runs`, which exists, is for the runs.
    record : str
        How to record: ``preload``, ``attach`` or ``nothing``.
    hosts : Hosts
        Hosts of the processes.
    mutant : str, optional
        Name of one of `mutants.MUTANTS`, which replaces the recorder.
    """

    def __init__(
        self,
        folder: Path,
        record: str,
        hosts: Hosts,
        mutant: str | None = None,
    ) -> None:
        self._mutant = mutant
        self.folder, self.runs, self.record = folder, folder / "runs", record
        self.network, self._hidden = hosts.network, hosts.hidden
        self.facts_file = folder / "facts"
        self.lifetimes = Lifetimes()
        self.nannies: list[subprocess.Popen[Any]] = []
        self._file = folder / "scheduler.json"
        self._started = 0
        self.signalled: set[int] = set()
        #: Start and end of each time at which the disk of the runs was full.
        self.full: list[tuple[int, int]] = []
        self._logs: list[Any] = []
        host = A if self.network else "127.0.0.1"
        self.scheduler = self._start(
            "scheduler", "a",
            ["-m", "distributed.cli.dask_scheduler", "--host", host, "--port", "0",
             "--no-dashboard", "--scheduler-file", self._file],
        )  # fmt: skip
        try:
            self.wait(self._file.exists, "the start of the scheduler")
            for number in range(WORKERS):
                last = number == WORKERS - 1
                self.add_worker("b" if number else "a", hosts.clock if last else None)
            workload = [Path(__file__).with_name("workload.py"), self._file, self.facts_file]
            workload += [self.runs] if record == "attach" else []
            self.client = self._start("client", "a", workload, stdin=subprocess.PIPE)
        except BaseException:
            self.close()
            raise

    def _start(
        self, name: str, host: str, command: list[Any], clock: Clock | None = None, **kwargs: Any
    ) -> subprocess.Popen[Any]:
        log = (self.folder / f"{name}.log").open("wb")
        self._logs.append(log)
        hide = self.runs if self._hidden and host == "b" else None
        prefix = self.network.inside(host, hide=hide) if self.network else []
        process = subprocess.Popen(
            [*prefix, sys.executable, *map(str, command)],
            env=self._environment() | (clock.environment if clock else {}),
            cwd=self.folder,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the trial only, which stops them
            **kwargs,
        )
        self.lifetimes.watch(process.pid)
        return process

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_REMOVED)}
        kept |= {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000",
            "DASK_DISTRIBUTED__ADMIN__LOG_FORMAT": "'%(asctime)s %(name)s %(message)s'",
            "DASK_DASK_STRATA__RUNS": repr(str(self.runs)),
            "DASK_DASK_STRATA__SAMPLE_INTERVAL": "'200ms'",
        }
        if self.network:
            kept["DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP"] = (
                "11s"  # the smallest value that Dask accepts
            )
        if self.record == "preload":
            kept |= dict.fromkeys(_PRELOADS, "['dask_strata']")
        if self._mutant:
            preloads = "['tests.chaos.mutants', 'dask_strata']"
            kept |= dict.fromkeys(_PRELOADS, preloads) | {VARIABLE: self._mutant}
            kept["DASK_DISTRIBUTED__WORKER__PRELOAD"] = "['tests.chaos.mutants']"
        return kept

    def add_worker(self, host: str = "a", clock: Clock | None = None) -> None:
        """Start a nanny and its worker."""
        name = f"w{self._started}"
        self._started += 1
        address = (B if host == "b" else A) if self.network else "127.0.0.1"
        self.nannies.append(
            self._start(
                name, host,
                ["-m", "distributed.cli.dask_worker", "--scheduler-file", self._file,
                 "--host", address, "--nthreads", "1", "--no-dashboard", "--name", name,
                 "--memory-limit", "600MB", "--local-directory", self.folder / "scratch",
                 "--death-timeout", "60"],
                clock,
            )
        )  # fmt: skip

    def live_nannies(self) -> list[int]:
        """Return the pids of the running nannies."""
        return [n.pid for n in self.nannies if n.poll() is None]

    def live_workers(self) -> list[int]:
        """Return the pids of the running workers: children of their nannies."""
        found = []
        for nanny in self.live_nannies():
            for pid in children(nanny):
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    found += [pid] if b"spawn_main" in line and alive(pid) else []
        return found

    def keep_staffed(self) -> None:
        """Replace nannies that ended, as a batch system would."""
        for _ in range(WORKERS - len(self.live_nannies())):
            self.add_worker()

    def order(self, order: str) -> None:
        """Send an order to the client."""
        with contextlib.suppress(BrokenPipeError):
            self.client.stdin.write(order.encode() + b"\n")
            self.client.stdin.flush()

    def facts(self) -> list[Fact]:
        """Return the facts that tasks and client have written so far."""
        return read_facts(self.facts_file)

    def wait(self, condition: Callable[[], Any], event: str, seconds: float = HANG_SECONDS) -> None:
        """Wait for a condition.

        Raises
        ------
        TrialError
            The condition is still false after the given seconds.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TrialError(
                    f"{event} did not happen within {seconds:.0f} s: see {self.folder}"
                )
            time.sleep(0.05)

    def close(self) -> list[str]:
        """Stop all processes, in the order of a batch job; return those that had to be killed."""
        killed = []
        client = getattr(self, "client", None)
        if client is not None:
            with contextlib.suppress(BrokenPipeError):
                client.stdin.close()
        order = [("client", client)] if client is not None else []
        order += [(f"nanny {n.pid}", n) for n in self.nannies] + [("scheduler", self.scheduler)]
        for step in (order[: len(order) - 1], order[len(order) - 1 :]):
            for _, process in step:
                if process.poll() is None:
                    process.terminate()
            for name, process in step:
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    killed.append(name)
                    for pid in (*children(process.pid), process.pid):
                        self.lifetimes.kill(pid)
                    process.wait()
        # A process that does not handle SIGTERM, like the client, ends by the signal.
        self.signalled = {p.pid for _, p in order if p.returncode < 0}
        self.lifetimes.close()
        for log in self._logs:
            log.close()
        return killed

    def log(self) -> str:
        """Return the logs of all processes."""
        return "\n".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(self.folder.glob("*.log"))
        )
