"""A workflow with a known result: `python workload.py SCHEDULER_FILE FACTS [RUNS]`.

Rounds of tasks, until the line `end` on standard input; other orders are `restart`, `retire` and
`hog`. With RUNS the client records the cluster itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from distributed import CancelledError, Client, get_worker

N = 60
FACTS = sys.argv[2]
TRIES = 200


def write_fact(file: str, kind: str, **more: Any) -> None:
    """Append a fact to a file; the imports are local, as workers get the function alone."""
    import json
    import os
    import time

    fact = {"kind": kind, "ns": time.time_ns(), "mono": time.monotonic_ns(), "pid": os.getpid()}
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, (json.dumps({**fact, **more}) + "\n").encode())
    os.close(handle)


def known(number: int) -> int:
    """Return the result of a first task."""
    return number * 7919 % 1009


def task(facts: str, key: str, seconds: float, *parts: Any) -> Any:
    """Write facts at begin and end, and return the sum of the parts."""
    where = {"key": key, "worker": get_worker().address, "thread": threading.get_ident()}
    write_fact(facts, "begin", **where)
    # Not time.sleep: it fails under libfaketime when the clock is set.
    threading.Event().wait(seconds)
    answer = sum(parts)
    write_fact(facts, "end", **where)
    return answer


def hog(facts: str, key: str, mark: str) -> str:
    """Take memory until the worker is killed; return at once when a worker was killed before."""
    where = {"key": key, "worker": get_worker().address, "thread": threading.get_ident()}
    write_fact(facts, "begin", **where)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        write_fact(facts, "end", **where)
        return "was killed"
    held = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if len(held) < 50:
            held.append(b"x" * (20 << 20))
        threading.Event().wait(0.02)
    write_fact(facts, "end", **where)
    return "was not killed"


class Workflow:
    """Rounds of tasks, and the orders to the client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rounds = 0
        self.ended = threading.Event()
        self.hogs: list[Any] = []

    def round(self, number: int, attempt: int) -> None:
        """Run one round; raise ValueError if a result is wrong, or any error of Dask."""
        submit, mark = self.client.submit, f"{number}.{attempt}"
        parts = [known(number * N + i) for i in range(N)]

        def made(key: str, seconds: float, *values: Any) -> Any:
            write_fact(FACTS, "submitted", key=key)
            future = submit(task, FACTS, key, seconds, *values, key=key)
            future.add_done_callback(
                lambda f: write_fact(FACTS, "known", key=key) if f.status == "finished" else None
            )
            return future

        first = [made(f"a-{mark}-{i}", 0.002 + i % 5 * 0.005, parts[i]) for i in range(N)]
        second = [made(f"b-{mark}-{i}", 0.005, first[i], first[i - 1]) for i in range(N)]
        total = made(f"t-{mark}", 0.0, *second)
        answers = self.client.gather(second)
        if answers != [parts[i] + parts[i - 1] for i in range(N)]:
            raise ValueError(f"wrong results in round {mark}: {answers}")
        if total.result() != 2 * sum(parts):
            raise ValueError(f"a wrong total in round {mark}")

    def work(self) -> str:
        """Run rounds until the order to end; return the outcome."""
        attempt = 0
        while not self.ended.is_set():
            try:
                self.round(self.rounds, attempt)
            except CancelledError:
                # As after client.restart(): repeat the round, as a user would.
                attempt += 1
                if attempt > TRIES:
                    return "cancelled again and again"
                self.ended.wait(0.1)
                continue
            except Exception as error:  # noqa: BLE001  any error is the outcome
                return f"{type(error).__name__}: {error}"
            self.rounds, attempt = self.rounds + 1, 0
        for future in self.hogs:
            with contextlib.suppress(CancelledError):
                future.result()
        return "right"

    def restart(self) -> None:
        """Restart the cluster."""
        write_fact(FACTS, "restart")
        self.client.restart(wait_for_workers=False)

    def retire(self) -> None:
        """Retire a worker."""
        self.client.retire_workers(n=1, close_workers=True)

    def hog(self) -> None:
        """Submit a task that takes too much memory, once."""
        key = f"hog-{len(self.hogs)}"
        write_fact(FACTS, "submitted", key=key)
        future = self.client.submit(hog, FACTS, key, f"{FACTS}.{key}", key=key)
        self.hogs.append(future)

    def execute_orders(self) -> None:
        """Execute the orders on standard input."""
        orders: dict[str, Callable[[], None]] = {
            "restart": self.restart, "retire": self.retire, "hog": self.hog,
        }  # fmt: skip
        for line in sys.stdin:
            if line.strip() == "end":
                break
            # In a thread: an order that hangs on a lost worker must not delay the next one.
            threading.Thread(target=orders[line.strip()], daemon=True).start()
        self.ended.set()


def main() -> None:
    """Run the workflow, and write its outcome as a fact."""
    with Client(scheduler_file=sys.argv[1]) as client, contextlib.ExitStack() as stack:
        client.wait_for_workers(1)
        if len(sys.argv) > 3:
            import dask_strata

            stack.enter_context(dask_strata.record(sys.argv[3], client=client))
        workflow = Workflow(client)
        threading.Thread(target=workflow.execute_orders, daemon=True).start()
        outcome = workflow.work()
        write_fact(FACTS, "outcome", text=outcome, key=str(workflow.rounds))


if __name__ == "__main__":
    main()
