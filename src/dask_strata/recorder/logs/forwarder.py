"""Reading the output of a worker's process in its nanny, and passing it on.

A thread reads the pipes, writes what it reads to the nanny's own standard output and error at
once, and hands the lines to the recordings. It goes on until nobody has the pipes open for writing,
so that output arrives after the recording has ended, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path

from dask_strata.recorder.logs import pipes
from dask_strata.recorder.logs.lines import LineSplitter

#: Bytes that are read at once.
_BLOCK = 1 << 18

#: Longest wait for the reader of the nanny's own output before another attempt.
_POLL_MS = 100

#: Longest wait for the end of a line before its first part is passed on, and longest such part.
#: Several workers write to one file or terminal: a line that is cut gets one of another into it.
_LINE_MS = 20
_LINE_BYTES = 1 << 16

#: Longest wait for output that is on its way when the process exits.
_EXIT_SECONDS = 1.0


@dataclass(frozen=True)
class Lines:
    """Lines that a worker's process wrote to one stream.

    Attributes
    ----------
    stream : str
        stdout, stderr or output, for both.
    time : int
        When the nanny read them.
    pid : int or None
        Id of the process.
    lines : list of (bytes, int)
        Each line, clipped, and the number of bytes cut off.
    terminated : bool
        Whether they ended with a newline.
    """

    stream: str
    time: int
    pid: int | None
    lines: list[tuple[bytes, int]]
    terminated: bool = True


@dataclass
class _Stream:
    name: str
    reading: int
    writing: int | None
    pid: int | None = None
    splitter: LineSplitter = field(default_factory=LineSplitter)
    begun: bytes = b""

    def pass_on(self, data: bytes) -> None:
        """Write whole lines, and keep the beginning of the next one."""
        data = self.begun + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > _LINE_BYTES:
            end = len(data)
        self.begun = data[end:]
        self._write(data[:end])

    def pass_on_all(self) -> None:
        """Write what is there of the last line, too."""
        data, self.begun = self.begun, b""
        self._write(data)

    def _write(self, data: bytes) -> None:
        if self.writing is not None:
            _write(self.writing, data)


class Forwarder:
    """Passes on what is written to the present pipes in a folder.

    Parameters
    ----------
    folder : Path
        Folder of the pipes, see `pipes.folder_of`.
    deliver : callable
        Takes `Lines` on the thread; must not raise.
    ended : callable
        Called on the thread when the last writer has closed the pipes, unless `retire` was called.

    Raises
    ------
    OSError, RuntimeError
        The pipes or the thread cannot be created. Nothing has them open then: a worker that opened
        pipes which nobody reads would block.
    """

    def __init__(
        self, folder: Path, deliver: Callable[[Lines], None], ended: Callable[[], None]
    ) -> None:
        self._deliver, self._ended = deliver, ended
        self._streams: dict[int, _Stream] = {}
        self._retired = self._done = False
        self._drain_requests = 0
        self._drained = threading.Condition()
        self._woken, self._wake = _wake_pipe()
        self._thread = threading.Thread(target=self._run, name="dask-strata-output", daemon=True)
        try:
            created = pipes.create(folder)
            for pipe in created:
                self._streams[pipe.reading] = _Stream(pipe.stream, pipe.reading, None)
            for pipe in created:
                self._streams[pipe.reading].writing = _duplicate(pipe.standard)
            _all.append(self)
            _add_finalizer()
            self._thread.start()
        except BaseException:
            self._close()
            raise

    def retire(self) -> None:
        """End once nobody writes; another forwarder has taken over, or the recording has ended."""
        self._retired = True
        self._wake_up()

    def _wake_up(self) -> None:
        with self._drained, contextlib.suppress(OSError):
            if not self._done:
                os.write(self._wake, (1).to_bytes(8, sys.byteorder))

    def drain(self, seconds: float) -> None:
        """Wait until all that was written before has been passed on.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        with self._drained:
            if self._done:
                return
            self._drain_requests += 1
        self._wake_up()
        with self._drained:
            self._drained.wait_for(lambda: self._done or not self._drain_requests, seconds)

    def forget_thread(self) -> None:
        """Close the descriptors in a forked process."""
        for stream in self._streams.values():
            _close(stream.reading)
        _close(*{self._woken, self._wake})

    def _close(self) -> None:
        """Close all descriptors; who writes the pipes later gets an error, and does not block."""
        if self in _all:
            _all.remove(self)
        for stream in self._streams.values():
            _close(stream.reading)
            if stream.writing is not None:
                _release(stream.writing)
        self._streams.clear()
        with self._drained:
            self._done = True
            self._drained.notify_all()
            _close(*{self._woken, self._wake})

    def _run(self) -> None:
        try:
            self._pass_on()
        finally:
            self._close()
        if not self._retired:
            with contextlib.suppress(Exception):  # an error of new pipes must not end on a thread
                self._ended()

    def _pass_on(self) -> None:
        poll = select.poll()
        for reading in (*self._streams, self._woken):
            poll.register(reading, select.POLLIN)
        while self._streams:
            requests = self._drain_requests
            patience = _LINE_MS if any(s.begun for s in self._streams.values()) else None
            ready = [reading for reading, _ in poll.poll(0 if requests else patience)]
            for reading in ready:
                if reading == self._woken:
                    with contextlib.suppress(OSError):  # other code has closed all descriptors
                        os.read(reading, _BLOCK)
                else:
                    self._read(reading, poll)
            if self._retired and ready in ([], [self._woken]):
                self._close_unused(poll)
            if not ready:
                for stream in self._streams.values():
                    stream.pass_on_all()
                self._answer(requests)

    def _answer(self, requests: int) -> None:
        if requests:
            with self._drained:
                self._drain_requests = max(self._drain_requests - requests, 0)
                self._drained.notify_all()

    def _close_unused(self, poll: select.poll) -> None:
        """Close the pipes that nobody has open for writing: their end cannot be read."""
        for reading in list(self._streams):
            self._read(reading, poll)

    def _read(self, reading: int, poll: select.poll) -> None:
        stream = self._streams[reading]
        try:
            data = os.read(reading, _BLOCK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = time.time_ns()
        if not data:
            poll.unregister(reading)
            del self._streams[reading]
            stream.pass_on_all()
            rest = stream.splitter.rest()
            if rest is not None:
                self._deliver(Lines(stream.name, now, stream.pid, [rest], terminated=False))
            _close(reading)
            if stream.writing is not None:
                _release(stream.writing)
            return
        data, pid = pipes.without_hello(data)
        stream.pid = pid or stream.pid
        stream.pass_on(data)
        lines = stream.splitter.feed(data)
        if lines:
            self._deliver(Lines(stream.name, now, stream.pid, lines))


#: Copies of standard descriptors by the identity of their file, and how many streams use each.
#: A process may have many nannies, and few descriptors.
_copies: dict[tuple[int, int, int], int] = {}
_uses: Counter[int] = Counter()
_copies_lock = threading.Lock()


def _duplicate(descriptor: int) -> int | None:
    """Return a copy of a standard descriptor, which may be redirected later; None if closed."""
    try:
        with _copies_lock:
            identity = (descriptor, *pipes.identity(descriptor))
            if identity not in _copies:
                _copies[identity] = pipes.duplicate(descriptor)
            _uses[_copies[identity]] += 1
            return _copies[identity]
    except OSError as error:
        if error.errno == errno.EBADF:
            return None
        raise


def _release(copy: int) -> None:
    """Close a copy that no stream uses any more."""
    with _copies_lock:
        _uses[copy] -= 1
        if not _uses[copy]:
            del _uses[copy]
            for identity in [each for each, known in _copies.items() if known == copy]:
                del _copies[identity]
            _close(copy)


def _write(descriptor: int, data: bytes) -> None:
    """Write all bytes; do nothing if nobody reads them any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLOUT)
            waiting.poll(_POLL_MS)
        except OSError:
            return


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _wake_pipe() -> tuple[int, int]:
    """Return descriptors to read and to write 8 bytes at a time; the same one where possible."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return descriptor, descriptor
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    return ends


#: Forwarders of this process whose threads run.
_all: list[Forwarder] = []
_finalizers: list[Finalize] = []


def _add_finalizer() -> None:
    # With a negative priority it runs after `multiprocessing` has ended and joined the workers.
    if not _finalizers:
        _finalizers.append(Finalize(None, _pass_on_the_rest, exitpriority=-1))


def _pass_on_the_rest() -> None:
    until = time.monotonic() + _EXIT_SECONDS
    for forwarder in tuple(_all):
        forwarder.drain(max(until - time.monotonic(), 0.0))


def _forget_in_child() -> None:
    """Close the pipes in a forked process, which has none of the threads."""
    for forwarder in _all:
        forwarder.forget_thread()
    _all.clear()
    global _copies_lock  # noqa: PLW0603  a thread of the parent may hold the old lock
    _copies_lock = threading.Lock()
    _close(*_copies.values())
    _copies.clear()
    _uses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
