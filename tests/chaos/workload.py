"""A workflow of a known answer: `python workload.py SCHEDULER_FILE FACTS [RUNS]`.

Rounds of tasks, until standard input says `end`; other orders are `restart`, `retire` and
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


def say(file: str, what: str, **more: Any) -> None:
    """Write a fact."""
    import json
    import os
    import time

    fact = {"what": what, "ns": time.time_ns(), "mono": time.monotonic_ns(), "pid": os.getpid()}
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, (json.dumps({**fact, **more}) + "\n").encode())
    os.close(handle)


def known(number: int) -> int:
    """Return what a first task returns."""
    return number * 7919 % 1009


def task(facts: str, key: str, seconds: float, *parts: Any) -> Any:
    """Say that it begins, add up, say that it ends."""
    where = {"key": key, "worker": get_worker().address, "thread": threading.get_ident()}
    say(facts, "begin", **where)
    # Not time.sleep: libfaketime has that fail when the clock is set.
    threading.Event().wait(seconds)
    answer = sum(parts)
    say(facts, "end", **where)
    return answer


def hog(facts: str, key: str, mark: str) -> str:
    """Take memory until it is killed; where that happened before, say so."""
    where = {"key": key, "worker": get_worker().address, "thread": threading.get_ident()}
    say(facts, "begin", **where)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        say(facts, "end", **where)
        return "was killed"
    held = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if len(held) < 50:
            held.append(b"x" * (20 << 20))
        threading.Event().wait(0.02)
    say(facts, "end", **where)
    return "nobody minds"


class Workflow:
    """Rounds of tasks, and what the client was told meanwhile."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rounds = 0
        self.ended = threading.Event()
        self.hogs: list[Any] = []

    def round(self, number: int, attempt: int) -> None:
        """Do one round; fails if an answer is wrong, or as Dask fails."""
        submit, mark = self.client.submit, f"{number}.{attempt}"
        parts = [known(number * N + i) for i in range(N)]

        def made(key: str, seconds: float, *values: Any) -> Any:
            say(FACTS, "submitted", key=key)
            future = submit(task, FACTS, key, seconds, *values, key=key)
            future.add_done_callback(
                lambda f: say(FACTS, "known", key=key) if f.status == "finished" else None
            )
            return future

        first = [made(f"a-{mark}-{i}", 0.002 + i % 5 * 0.005, parts[i]) for i in range(N)]
        second = [made(f"b-{mark}-{i}", 0.005, first[i], first[i - 1]) for i in range(N)]
        total = made(f"t-{mark}", 0.0, *second)
        answers = self.client.gather(second)
        if answers != [parts[i] + parts[i - 1] for i in range(N)]:
            raise ValueError(f"wrong answers in round {mark}: {answers}")
        if total.result() != 2 * sum(parts):
            raise ValueError(f"a wrong total in round {mark}")

    def work(self) -> str:
        """Do rounds until told to end; return the outcome."""
        attempt = 0
        while not self.ended.is_set():
            try:
                self.round(self.rounds, attempt)
            except CancelledError:
                # As after client.restart(): the same again, like a user would.
                attempt += 1
                if attempt > TRIES:
                    return "cancelled again and again"
                self.ended.wait(0.1)
                continue
            except Exception as error:  # noqa: BLE001  whatever it is, it is the outcome
                return f"{type(error).__name__}: {error}"
            self.rounds, attempt = self.rounds + 1, 0
        for future in self.hogs:
            with contextlib.suppress(CancelledError):
                future.result()
        return "right"

    def restart(self) -> None:
        """Restart the cluster."""
        say(FACTS, "restart")
        self.client.restart(wait_for_workers=False)

    def retire(self) -> None:
        """Let a worker go."""
        self.client.retire_workers(n=1, close_workers=True)

    def hog(self) -> None:
        """Submit a task that takes too much memory, once."""
        key = f"hog-{len(self.hogs)}"
        say(FACTS, "submitted", key=key)
        future = self.client.submit(hog, FACTS, key, f"{FACTS}.{key}", key=key)
        self.hogs.append(future)

    def obey(self) -> None:
        """Take orders."""
        orders: dict[str, Callable[[], None]] = {
            "restart": self.restart, "retire": self.retire, "hog": self.hog,
        }  # fmt: skip
        for line in sys.stdin:
            if line.strip() == "end":
                break
            # An order that hangs, on a worker that does not answer, must not keep the next.
            threading.Thread(target=orders[line.strip()], daemon=True).start()
        self.ended.set()


def main() -> None:
    """Work, and say how it went."""
    with Client(scheduler_file=sys.argv[1]) as client, contextlib.ExitStack() as stack:
        client.wait_for_workers(1)
        if len(sys.argv) > 3:
            import dask_strata

            stack.enter_context(dask_strata.record(sys.argv[3], client=client))
        workflow = Workflow(client)
        threading.Thread(target=workflow.obey, daemon=True).start()
        outcome = workflow.work()
        say(FACTS, "outcome", text=outcome, key=str(workflow.rounds))


if __name__ == "__main__":
    main()
