"""The output of a nanny's worker processes: rows of ``output_lines``."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dask_strata.recorder.logs import from_start, pipes
from dask_strata.recorder.logs.budget import REASON, Budget
from dask_strata.recorder.logs.forwarder import Forwarder, Lines
from dask_strata.recorder.logs.texts import TextFilter
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.store.segments.frames import Batch

#: Last lines beyond the bound that are recorded when the process ends.
_LAST_LINES = 200

#: Longest wait at the end of the recording for output that is on its way.
_DRAIN_SECONDS = 1.0


class _Line(NamedTuple):
    time: int
    pid: int | None
    stream: str
    line: bytes
    beyond: int
    terminated: bool


class Capture:
    """The pipes of one nanny, which its recordings share.

    Parameters
    ----------
    nanny : distributed.Nanny
        The nanny.
    """

    def __init__(self, nanny: Any) -> None:
        self._nanny, self._folder = nanny, pipes.folder_of(nanny.address)
        self._listeners: list[OutputSource] = []
        self._preloading = False
        self._forwarders: list[Forwarder] = []
        self._lock = threading.Lock()

    def add(self, listener: OutputSource) -> None:
        """Deliver lines to a recording; raise an error if there can be no pipes."""
        with self._lock:
            if not self._forwarders:
                self._renew()
            self._listeners.append(listener)

    def remove(self, listener: OutputSource) -> bool:
        """Deliver no more to a recording; return whether none is left."""
        with self._lock:
            self._listeners = [each for each in self._listeners if each is not listener]
            if not self._listeners:
                if self._preloading:
                    _stop_preloading(self._nanny)
                pipes.remove(self._folder)
                for forwarder in self._forwarders:
                    forwarder.retire()
                self._forwarders = []
            return not self._listeners

    def before_start(self) -> None:
        """Make new pipes for a process that is about to start, and have it use them."""
        self.renew()
        self._preloading = True
        _preload(self._nanny, self._folder)

    def renew(self) -> None:
        """Make new pipes; never raises."""
        with self._lock, contextlib.suppress(OSError, RuntimeError):  # no thread can be started
            if self._listeners:
                self._renew()

    def _renew(self) -> None:
        made = Forwarder(self._folder, self._deliver, self.renew)
        for forwarder in self._forwarders:
            forwarder.retire()
        self._forwarders = [made, *self._forwarders[:2]]

    def drain(self, seconds: float) -> None:
        """Wait until what was written before is delivered, at most for some seconds each."""
        for forwarder in list(self._forwarders):
            forwarder.drain(seconds)

    def _deliver(self, lines: Lines) -> None:
        for listener in list(self._listeners):
            listener.take(lines)


def _preload(nanny: Any, folder: Path) -> None:
    """Have the next process of a nanny's worker redirect its output before all other preloads."""
    nanny.env[pipes.FOLDER_VARIABLE] = str(folder)
    # The import of the module has done nothing in this process, which does not have the variable.
    preload = [nanny.preload] if isinstance(nanny.preload, str) else list(nanny.preload)
    if from_start.__name__ not in preload:
        nanny.preload = [from_start.__name__, *preload]
        arguments = nanny.preload_argv
        if arguments and not isinstance(arguments[0], str):  # a list for each module
            nanny.preload_argv = [[], *arguments]


def _stop_preloading(nanny: Any) -> None:
    nanny.env.pop(pipes.FOLDER_VARIABLE, None)
    if from_start.__name__ in nanny.preload:
        at = nanny.preload.index(from_start.__name__)
        nanny.preload = [*nanny.preload[:at], *nanny.preload[at + 1 :]]
        arguments = nanny.preload_argv
        if arguments and not isinstance(arguments[0], str):
            nanny.preload_argv = [*arguments[:at], *arguments[at + 1 :]]


#: Captures by the identity of their nanny.
_captures: dict[int, Capture] = {}
_lock = threading.Lock()


class OutputSource(Source):
    """Record what the processes of a nanny's worker write to their standard output and error.

    Parameters
    ----------
    nanny : distributed.Nanny
        The nanny.
    engine : Engine
        Its recorder.
    """

    def __init__(self, nanny: Any, engine: Engine) -> None:
        self._nanny, self._engine = nanny, engine
        self._budget = Budget()
        self._lines: deque[_Line] = deque()
        #: Lines beyond the bound, which may be the last ones of their process.
        self._last: deque[_Line] = deque(maxlen=_LAST_LINES)
        #: Lines are lost, counted and kept after all on several threads, none of them a loop's.
        self._counting = threading.Lock()
        self._filters = {
            stream: TextFilter(code=engine.settings.code) for stream in (*pipes.STREAMS, pipes.BOTH)
        }
        #: Address of the worker by the id of its process.
        self._addresses: dict[int, str | None] = {}
        with _lock:
            self._capture = _captures.setdefault(id(nanny), Capture(nanny))
            try:
                self._capture.add(self)
            except BaseException:
                _captures.pop(id(nanny), None)
                raise

    def before_start(self) -> None:
        """Make new pipes, as the nanny is about to start a process."""
        self._capture.before_start()

    def set_address(self, pid: int | None, address: str | None) -> None:
        """Note the address of the worker in a process."""
        if pid is not None:
            self._addresses[pid] = address

    def take(self, lines: Lines) -> None:
        """Keep lines for the next flush, within the bounds. Called on the thread that reads."""
        with self._counting:
            # An error must not end the thread: nobody else reads what the process writes.
            self._engine.call(lambda: self._take(lines), "lines of output")

    def _take(self, lines: Lines) -> None:
        found = lines.lines
        n = self._budget.take([len(line) for line, _ in found])
        self._lines += [self._line(lines, line) for line in found[:n]]
        self._last += [self._line(lines, line) for line in found[n:][-_LAST_LINES:]]
        if not lines.terminated:
            self._keep_last()

    @staticmethod
    def _line(lines: Lines, line: tuple[bytes, int]) -> _Line:
        return _Line(lines.time, lines.pid, lines.stream, *line, lines.terminated)

    def _keep_last(self) -> None:
        """Keep the last lines beyond the bound, too: they may explain the end of the process."""
        kept = [self._last.popleft() for _ in range(len(self._last))]
        self._budget.unlose(len(kept))
        self._lines += kept

    def process_ended(self) -> None:
        """Record what the process wrote last. Called when its exit is known."""
        self._capture.drain(_DRAIN_SECONDS)
        with self._counting:
            self._keep_last()

    def rows(self) -> Iterable[Batch]:
        """Return rows of the lines since the last call."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if not lines:
            return
        texts: list[str] = [""] * len(lines)
        for stream, filtered in self._filters.items():
            of_stream = [i for i, line in enumerate(lines) if line.stream == stream]
            clean = filtered.lines([_text(lines[i]) for i in of_stream])
            for i, text in zip(of_stream, clean, strict=True):
                texts[i] = text
        columns: dict[str, Any] = {
            "time": [line.time for line in lines],
            "pid": [line.pid for line in lines],
            "stream": [line.stream for line in lines],
            "terminated": [line.terminated for line in lines],
            "worker": [self._addresses.get(line.pid or 0) for line in lines],
            "line": texts,
        }
        yield Batch("output_lines", len(lines), columns)

    def sample(self) -> None:
        """Record how many lines were lost since the last sample."""
        with self._counting:
            lost = self._budget.take_lost(kept=len(self._last))
        if lost:
            row = {"what": "output_lines", "count": lost, "reason": REASON}
            self._engine.add("losses", time=now_ns(), where=self._engine.process, **row)

    def detach(self) -> None:
        """Do nothing: the lines that are on their way are recorded in `finish`."""

    def finish(self) -> None:
        """Record the last lines; what is written later is only passed on."""
        self.process_ended()
        with _lock:
            if self._capture.remove(self):
                _captures.pop(id(self._nanny), None)
        with self._counting:
            self._keep_last()
        self.sample()


def _text(line: _Line) -> str:
    text = line.line.decode("utf-8", "backslashreplace")
    return f"{text}… ({line.beyond} more bytes)" if line.beyond else text


def record_output(nanny: Any, engine: Engine) -> OutputSource | None:
    """Return the source of the output of a nanny's worker; None if it is not recorded.

    Parameters
    ----------
    nanny : distributed.Nanny
        The nanny.
    engine : Engine
        Its recorder.
    """
    if "logs" in engine.settings.leave_out:
        return None
    reason = "this system has no named pipes"
    if pipes.available():
        try:
            return OutputSource(nanny, engine)
        except (OSError, RuntimeError) as error:
            reason = f"the nanny cannot read its worker's output: {error}"
    engine.add("losses", time=now_ns(), what="output_lines", reason=reason, where=engine.process)
    return None
