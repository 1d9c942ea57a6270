"""Instructions that recording adds to the scheduler, counted by valgrind, which has no noise.

A real `distributed.Scheduler` with the states of two workers and no worker processes. Tasks
enter its state as a client's graph would, the messages that a worker would send finish them,
through the scheduler's own stream handlers, and at the end all are forgotten. Nothing is sent,
nothing waits, no other thread is counted; so every process executes the same instructions, except
for the parts that are attached to the scheduler:

    none      no part of dask-strata
    empty     a plugin whose `transition` does nothing
    strata    dask-strata with default settings; encoding is not counted
    encoding  the same, and encoding and writing too, once for every 1,000 tasks
    plugin    dask-strata with `tap: plugin`; encoding is not counted
    no-plugin   strata, without being among Dask's plugins
    no-reports  strata, without seeing the messages of finished and failed tasks
    no-log      strata, without following Dask's log

    python benchmarks/instructions.py --tasks 1000 --variants none,empty,strata
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

VARIANTS = ("none", "empty", "strata", "encoding", "plugin", "no-plugin", "no-reports", "no-log")
WORKERS = ("tcp://10.0.0.1:1", "tcp://10.0.0.2:1")
#: Tasks that are submitted together; also how many there are between two flushes.
BATCH = 1_000
#: Function of the interpreter that calls through ctypes; nothing else does in the meantime.
COUNTED = "_ctypes_callproc"


class Nowhere:
    """A comm that takes everything and sends nothing."""

    def send(self, *messages: Any) -> None:
        pass

    def abort(self) -> None:
        pass

    def closed(self) -> bool:
        return False

    async def close(self) -> None:
        pass


def add_workers(scheduler: Any) -> None:
    """Put workers into the scheduler's state that nobody runs."""
    from distributed.core import Status
    from distributed.scheduler import ClientState, WorkerState

    for address in WORKERS:
        ws = WorkerState(
            address=address,
            status=Status.running,
            pid=1,
            name=address,
            nthreads=1,
            memory_limit=2**31,
            local_directory="/",
            nanny="",
            server_id=address,
            services={},
            versions={},
            extra={},
            scheduler=scheduler,
        )
        scheduler.workers[address] = ws
        scheduler.running.add(ws)
        scheduler.aliases[address] = address
        scheduler.total_nthreads += 1
        scheduler.stream_comms[address] = Nowhere()
        scheduler.check_idle_saturated(ws)
        for plugin in list(scheduler.plugins.values()):
            plugin.add_worker(scheduler=scheduler, worker=address)
    scheduler.clients["client"] = ClientState("client")
    scheduler.client_comms["client"] = Nowhere()


def submit(scheduler: Any, first: int) -> list[str]:
    """Submit one batch of tasks; returns their keys."""
    import inspect

    from dask._task_spec import Task

    create = scheduler._create_taskstate_from_graph  # noqa: SLF001  all that counts of update_graph
    dsk = {key: Task(key, abs, -1) for key in (f"task-{n}" for n in range(first, first + BATCH))}
    older = "dependencies" in inspect.signature(create).parameters
    create(
        start=0.0,
        dsk=dsk,
        keys=set(dsk),
        ordered={key: i for i, key in enumerate(dsk)},
        client="client",
        annotations_by_type={},
        global_annotations=None,
        stimulus_id=f"update-graph-{first}",
        submitting_task=None,
        span_metadata={"collections": []},
        **({"dependencies": {key: set() for key in dsk}} if older else {}),
    )
    return list(dsk)


def finish(scheduler: Any) -> int:
    """Send the message of a finished task until nothing is processing; returns how many."""
    handle = scheduler.stream_handlers["task-finished"]
    done = 0
    while any(ws.processing for ws in scheduler.workers.values()):
        for ws in list(scheduler.workers.values()):
            for ts in list(ws.processing):
                handle(
                    key=ts.key,
                    worker=ws.address,
                    stimulus_id=f"task-finished-{done}",
                    run_id=ts.run_id,
                    nbytes=28,
                    type=b"int",
                    typename="int",
                    metadata={},
                    thread=1,
                    status="OK",
                    startstops=[{"action": "compute", "start": 1.0, "stop": 1.001}],
                )
                done += 1
    return done


def replay(scheduler: Any, tasks: int, flush: Any) -> None:
    """Take that many tasks through their whole lives."""
    for first in range(0, tasks, BATCH):
        keys = submit(scheduler, first)
        if finish(scheduler) != len(keys):
            raise RuntimeError("not every task was finished")
        scheduler.client_releases_keys(keys=keys, client="client", stimulus_id=f"release-{first}")
        flush()
    if scheduler.tasks:
        raise RuntimeError("not every task was forgotten")


def counted(action: Any) -> None:
    """Call something through ctypes, which is the one thing that valgrind counts."""
    ctypes.pythonapi.PyObject_CallNoArgs.restype = ctypes.py_object
    ctypes.pythonapi.PyObject_CallNoArgs(ctypes.py_object(action))


async def attach(scheduler: Any, variant: str, runs: str) -> Any:
    """Attach what the variant says; returns what flushes within the count."""
    if variant == "empty":
        from distributed.diagnostics.plugin import SchedulerPlugin

        class Empty(SchedulerPlugin):
            def transition(self, *args: Any, **kwargs: Any) -> None:
                pass

        scheduler.add_plugin(Empty())
    if variant in ("none", "empty"):
        return lambda: None
    from dask_strata.config import read_settings
    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    # Its own thread wakes once an hour, so that what it does is done here or not at all.
    recorder = SchedulerRecorder(
        read_settings(
            runs=runs, flush_interval=3600, tap="plugin" if variant == "plugin" else "auto"
        ),
        "instructions",
    )
    await recorder.start(scheduler)
    scheduler.add_plugin(recorder)
    # Its parts are taken off one at a time.
    transitions = recorder._sources.transitions  # noqa: SLF001
    if variant == "no-plugin":
        del scheduler.plugins[recorder.name]
    if variant == "no-reports":
        for hook in transitions._hooks:  # noqa: SLF001
            hook.remove()
    if variant == "no-log":
        transitions._log.remove()  # noqa: SLF001
    return recorder._engine.flush if variant == "encoding" else lambda: None  # noqa: SLF001


async def child(variant: str, tasks: int) -> None:
    """Do the work of one variant; this is what runs under valgrind."""
    import gc
    import logging

    from distributed import Scheduler

    logging.getLogger("distributed").setLevel(logging.WARNING)

    with tempfile.TemporaryDirectory() as runs:
        async with Scheduler(
            protocol="inproc", dashboard=False, dashboard_address=":0", validate=False
        ) as scheduler:
            flush = await attach(scheduler, variant, runs)
            add_workers(scheduler)
            replay(scheduler, BATCH, flush)  # so that caches are warm
            before = scheduler.transition_counter
            gc.collect()
            counted(lambda: replay(scheduler, tasks, flush))
            print(json.dumps({"transitions": scheduler.transition_counter - before}), flush=True)
            os._exit(0)  # closing would look for the workers that are not there


def count(variant: str, tasks: int) -> dict[str, int]:
    """Run one variant under valgrind; returns instructions and transitions."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "callgrind.out"
        done = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--toggle-collect={COUNTED}",
                f"--callgrind-out-file={out}",
                sys.executable,
                __file__,
                "--child",
                variant,
                "--tasks",
                str(tasks),
            ],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONHASHSEED": "0", "TMPDIR": scratch},
        )
        totals = [
            line
            for line in (out.read_text() if out.exists() else "").splitlines()
            if line.startswith(("totals:", "summary:"))
        ]
        if done.returncode or not totals:
            raise RuntimeError(f"{variant} did not work:\n{done.stderr[-3000:]}")
        answer = json.loads(done.stdout.splitlines()[-1])
        instructions = int(totals[-1].split()[1])
        if not instructions:
            raise RuntimeError(f"valgrind did not find {COUNTED} in this Python")
        return answer | {"instructions": instructions}


def render(found: dict[str, dict[str, int]]) -> str:
    """Return the counts and their ratios as text."""
    lines = [f"{'variant':<12}{'instructions':>16}{'transitions':>14}{'each':>10}{'ratio':>9}"]
    base = found.get("none", {}).get("instructions")
    for variant, numbers in found.items():
        total, transitions = numbers["instructions"], numbers["transitions"]
        ratio = f"{total / base:.4f}" if base else "-"
        lines.append(
            f"{variant:<12}{total:>16,}{transitions:>14,}{total / transitions:>10,.0f}{ratio:>9}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tasks", type=int, default=3000, help="a multiple of 1,000 (default: %(default)s)")
    add("--variants", default=",".join(VARIANTS), help="which, with commas")
    add("--jobs", type=int, default=1, help="how many at once; they do not disturb each other")
    add("--json", type=Path, help="write the counts to this file")
    add("--child", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        asyncio.run(child(options.child, options.tasks))
        return 0
    variants = options.variants.split(",")
    if unknown := [v for v in variants if v not in VARIANTS]:
        parser.error(f"no variant {unknown[0]!r}; there are {', '.join(VARIANTS)}")
    if shutil.which("valgrind") is None:
        print("Error: valgrind is missing: apt-get install valgrind", file=sys.stderr)
        return 1
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            numbers = list(pool.map(lambda v: count(v, options.tasks), variants))
    except RuntimeError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    found = dict(zip(variants, numbers, strict=True))
    print(render(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
