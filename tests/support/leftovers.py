"""Traces that a recording must not leave in any process of a cluster."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import wait_until

if TYPE_CHECKING:
    from distributed import Client


def leftovers(server: Any, runs: str) -> list[str]:
    """Return the traces of a recording in this process and on this scheduler, worker or nanny."""
    found = [f"thread {t.name}" for t in threading.enumerate() if "dask-strata" in t.name]
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(runs):
            found.append(f"descriptor of {target}")
    found += [f"attribute {name}" for name in vars(server) if "strata" in name]
    found += [f"handler {name}" for name in server.handlers if "strata" in name]
    found += [f"hook on {name}" for name, handler in server.handlers.items() if _ours(handler)]
    found += [f"method {name}" for name, method in vars(server).items() if _ours(method)]
    for name in ("plugins", "worker_plugins", "nanny_plugins", "scheduler_plugins"):
        plugins = getattr(server, name, {})
        found += [f"{name}: {plugin}" for plugin in plugins if "strata" in str(plugin)]
    metadata = getattr(server, "task_metadata", {})
    found += [f"metadata {key}" for key in metadata if "strata" in str(key)]
    owners = [(server, "transition_log"), (getattr(server, "state", None), "log")]
    owners += [(server, f"transfer_{end}_log") for end in ("incoming", "outgoing")]
    for owner, name in owners:
        log = getattr(owner, name, None)
        if log is not None and (type(log) is not deque or log.maxlen is None):
            found.append(f"{name} is {type(log)}, at most {log.maxlen}")
    return found


def _ours(method: Any) -> bool:
    return type(getattr(method, "__self__", None)).__module__.startswith("dask_strata")


def on_scheduler(runs: str, dask_scheduler: Any = None) -> list[str]:
    """Return the traces on the scheduler; its process may also run nannies."""
    return leftovers(dask_scheduler, runs)


def on_worker(runs: str, dask_worker: Any = None) -> list[str]:
    """Return the traces on a worker, or on a nanny, for which Dask uses the same argument."""
    return leftovers(dask_worker, runs)


def assert_nothing_left(client: Client, runs: Path) -> None:
    """Wait until no process of the cluster has traces of a recording."""

    def left() -> dict[str, list[str]]:
        found = {"scheduler": client.run_on_scheduler(on_scheduler, str(runs))}
        found |= client.run(on_worker, str(runs))
        found |= {f"nanny {a}": n for a, n in client.run(on_worker, str(runs), nanny=True).items()}
        method = [] if "_graph_to_futures" not in vars(client) else ["_graph_to_futures"]
        return {
            process: traces for process, traces in {**found, "client": method}.items() if traces
        }

    last: list[Any] = []

    def nothing() -> bool:
        last[:] = [left()]
        return not last[0]

    wait_until(nothing, what=f"the removal of all traces; the last were {last}")
