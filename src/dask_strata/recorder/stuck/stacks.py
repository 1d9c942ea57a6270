"""Stacks of tasks' threads, requested from workers through Dask's own call-stack request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dask_strata.recorder.pipeline.redact import redact_text

#: A frame as `distributed.profile.call_stack` returns it, without its source line.
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\w+), in (?P<function>.+)')

#: Functions of Dask's worker that call the task, and files that call the function from there.
_CALLS_TASK = re.compile(
    r"(?:_run_task|_run_actor|apply_function)\w* .*distributed[/\\]worker\.py$"
)
_CALLS_FUNCTION = re.compile(r"dask[/\\]_task_spec\.py$|dask_strata[/\\]recorder[/\\]")

#: Most frames of a stack: of longer ones the first and the last.
_MAX_FRAMES, _FIRST_FRAMES = 60, 20

#: Most characters of a file's path.
_MAX_CHARACTERS = 500


def stack_text(frames: Iterable[str]) -> str | None:
    r"""Return a stack as a line a frame, outermost first, without the frames that start a task.

    Parameters
    ----------
    frames : iterable of str
        The frames as Dask returns them, outermost first.

    Examples
    --------
    >>> print(stack_text([
    ...     '  File "/v/distributed/worker.py", line 2929, in _run_task\n\tmsg = …',
    ...     '  File "/home/me/job.py", line 12, in process\n\tread_block(x)',
    ...     '  File "/home/me/reader.py", line 88, in read_block\n\tf.read()',
    ... ]))
    process (/home/me/job.py:12)
    read_block (/home/me/reader.py:88)
    """
    found = [match for frame in frames if (match := _FRAME.match(frame)) is not None]
    callers = (i for i, f in enumerate(found) if _CALLS_TASK.match(f"{f['function']} {f['file']}"))
    begin = 1 + max(callers, default=-1)
    while begin < len(found) - 1 and _CALLS_FUNCTION.search(found[begin]["file"]):
        begin += 1
    lines = [
        redact_text(f"{f['function']} ({f['file'][-_MAX_CHARACTERS:]}:{f['line']})")
        for f in found[begin:]
    ]
    if len(lines) > _MAX_FRAMES:
        last = _MAX_FRAMES - _FIRST_FRAMES
        rest = f"… ({len(lines) - _MAX_FRAMES} more frames)"
        lines = [*lines[:_FIRST_FRAMES], rest, *lines[-last:]]
    return "\n".join(lines) or None


class StackRequests:
    """Requests stacks from workers; at most one request to each worker is under way.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler, whose connections are used.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._pending: dict[str, asyncio.Future[Any]] = {}

    async def of(
        self, keys: Mapping[str, list[Any]], seconds: float
    ) -> dict[str, Mapping[Any, list[str]]]:
        """Return the frames by worker and key, of the workers that answered in time.

        Parameters
        ----------
        keys : mapping
            The keys by the address of the worker.
        seconds : float
            Longest time to wait.
        """
        asked = {
            worker: self._ask(worker, wanted)
            for worker, wanted in keys.items()
            if worker not in self._pending
        }
        if not asked:
            return {}
        await asyncio.wait(asked.values(), timeout=seconds)
        answers = {}
        for worker, request in asked.items():
            if not request.done():
                request.cancel()  # it may take long to end, as it closes a connection
            elif not request.cancelled() and request.exception() is None:
                answers[worker] = request.result()
        return answers

    def cancel(self) -> None:
        """Cancel the requests under way; call it on the event loop."""
        for request in list(self._pending.values()):
            request.cancel()

    def _ask(self, worker: str, keys: list[Any]) -> asyncio.Future[Any]:
        call = self._scheduler.rpc(worker).call_stack(keys=keys)
        request: asyncio.Future[Any] = asyncio.ensure_future(call)
        self._pending[worker] = request
        request.add_done_callback(lambda ended: self._ended(worker, ended))
        return request

    def _ended(self, worker: str, request: asyncio.Future[Any]) -> None:
        self._pending.pop(worker, None)
        if not request.cancelled():
            request.exception()  # asyncio logs an exception that nobody looked at
