"""Finalising a run on a Dask cluster: each bucket of a stage is a task.

The client writes the recorded tables and computes the stages that need rows of all keys, as on one
machine. Workers compute the stages of buckets, and write into the same folder.
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dask_strata.cluster.bucket import TOKEN, Job, build, compute, look
from dask_strata.config import VERSION
from dask_strata.errors import StrataError, UsageError
from dask_strata.run.finalise import Computation, Files, Stage, finalise, stages
from dask_strata.store.compact import Compaction
from dask_strata.store.finalise.spool import KEYS_PER_BUCKET
from dask_strata.store.finalise.tables import part_name
from dask_strata.store.manifest import Manifest
from dask_strata.store.safe_files import checksum

if TYPE_CHECKING:
    from typing_extensions import Self

#: Longest time without any worker: a cluster may just be starting, or replacing them.
_NO_WORKER_SECONDS = 60.0

#: Interval between two looks at the cluster while no bucket is complete.
_LOOK_SECONDS = 1.0

_UNCHANGED = (
    "The run is unchanged. This machine computes all of it without --scheduler, in Python without "
    "client=."
)

#: Errors of connections and of waiting; a lost scheduler also cancels tasks.
_LOST = (OSError, TimeoutError, RuntimeError, ValueError)


def finalise_on(
    client: Any,
    folder: Path,
    progress: Callable[[str], None] = lambda _: None,
    keys_per_bucket: int = KEYS_PER_BUCKET,
) -> Compaction:
    """Finalise a run on a cluster; the result is that of `run.finalise.finalise`.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client of the cluster, whose workers see the run's folder.
    folder : Path
        The run's folder.
    progress : callable, optional
        Called with the name of each table before it is written, and with the number of the buckets
        that are complete.
    keys_per_bucket : int, optional
        Number of keys whose rows are a task.

    Raises
    ------
    NotARunError, NewerRunError
        The folder is not a run that this version can read.
    UsageError
        The client is asynchronous.
    StrataError
        The workers do not see the folder, have another version of dask-strata, or were lost. The
        run is unchanged then.
    """
    if client.asynchronous:
        raise UsageError(
            "This client is asynchronous: compacting would block its event loop.",
            hint="Pass a client that was made without asynchronous=True.",
        )
    run_id = Manifest.read(folder).run_id
    with _Cluster(client, Path(os.path.abspath(folder)), run_id, progress) as cluster:
        cluster.check()
        return finalise(folder, progress, keys_per_bucket, cluster.run)


class _Cluster:
    """The workers of a cluster, with a folder for their temporary files.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster.
    folder : Path
        The run's folder.
    run_id : str
        Id of the run.
    progress : callable
        Called with the number of buckets that are complete.
    """

    def __init__(
        self, client: Any, folder: Path, run_id: str, progress: Callable[[str], None]
    ) -> None:
        self._client, self._folder, self._run_id = client, folder, run_id
        self._progress = progress
        self._token = secrets.token_hex(16)
        self._scratch = folder / f".finalise-{secrets.token_hex(4)}"
        self._n_files: dict[str, int] = {}
        self._last_seen = time.monotonic()

    def __enter__(self) -> Self:
        try:
            self._scratch.mkdir(mode=0o700)
            (self._scratch / TOKEN).write_text(self._token, encoding="ascii")
        except OSError as error:
            self._clear()
            raise StrataError(
                f"{self._folder} cannot be written to: {error.strerror or error}.",
                hint="Make room or check permissions, then try again.",
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        """Remove the temporary files; workers that still compute cannot rename theirs then."""
        for _ in range(10):
            shutil.rmtree(self._scratch, ignore_errors=True)
            if not self._scratch.exists():
                return
            time.sleep(0.1)  # a worker created a file meanwhile

    def check(self) -> None:
        """Check that all workers have this version and see the run's folder.

        Raises
        ------
        StrataError
            There is no worker, or one cannot compute buckets.
        """
        try:
            self._client.wait_for_workers(1, timeout=_NO_WORKER_SECONDS)
            there = str(self._scratch), self._token, build()
            answers = self._client.run(look, *there, "checked", on_error="return")
        except _LOST as error:
            raise self._failed(f"no answer of its workers, {_first_line(error)}") from error
        problems = {address: _problem(answer) for address, answer in answers.items() if answer}
        for address, problem in problems.items():
            more = f" {len(problems) - 1:,} other workers have problems, too." * (len(problems) > 1)
            raise StrataError(
                f"The worker {address} cannot help to compact {self._folder}: {problem}.{more}",
                hint=f"Workers need dask-strata {VERSION}, and a file system that they share with "
                f"this machine, with the run at the same path. {_UNCHANGED}",
            )
        if not self._sees("checked"):
            raise self._failed(f"files of its workers do not appear in {self._scratch} here")

    def _sees(self, name: str) -> bool:
        try:
            return (self._scratch / name).read_text(encoding="ascii") == self._token
        except OSError:
            return False

    def run(self, computation: Computation, stage: Stage) -> Iterator[tuple[int, Files]]:
        """Compute a stage on the workers; yield each bucket with its files.

        Parameters
        ----------
        computation : Computation
            The computation, of this process.
        stage : Stage
            The stage.
        """
        futures: dict[Any, int] = {}
        try:
            done = self._submit(computation, stage, futures)
            n_buckets = len(futures)
            while futures:
                self._progress(f"bucket {n_buckets - len(futures):,} of {n_buckets:,}")
                future = self._next(done)
                if future is not None:
                    bucket = futures.pop(future)
                    yield bucket, self._files(computation, bucket, future)
        except _LOST as error:
            raise self._failed(_first_line(error)) from error
        finally:
            if futures:
                self._stop(list(futures))

    def _submit(
        self, computation: Computation, stage: Stage, futures: dict[Any, int]
    ) -> queue.Queue[Any]:
        """Submit the tasks of a stage, and return a queue to which each is added at its end."""
        part = computation.part
        number = stages().index(stage)
        job = Job(
            str(self._folder), part.home, self._run_id,
            str(self._scratch), self._token, build(),
        )  # fmt: skip
        folder = self._folder.joinpath(*part.home)
        tables = [p.name for p in folder.iterdir() if p.is_dir() and p.name not in stage.written]
        n_files = {name: len(list((folder / name).iterdir())) for name in tables}
        done: queue.Queue[Any] = queue.Queue()
        for bucket in range(computation.n_buckets):
            key = f"dask-strata-compact-{self._token[:8]}-{number}-{bucket}"
            future = self._client.submit(compute, job, number, bucket, n_files, key=key, pure=False)
            futures[future] = bucket
            future.add_done_callback(done.put)
        return done

    def _next(self, done: queue.Queue[Any]) -> Any:
        """Return the next future that has ended; None if the workers still compute."""
        try:
            future = done.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if self._client.status != "running":
                raise ConnectionError("the connection to its scheduler was lost") from None
            if self._client.nthreads():
                self._last_seen = time.monotonic()
            elif time.monotonic() - self._last_seen > _NO_WORKER_SECONDS:
                raise ConnectionError(f"it had no worker for {_NO_WORKER_SECONDS:g} s") from None
            return None
        self._last_seen = time.monotonic()
        return future

    def _files(self, computation: Computation, bucket: int, future: Any) -> Files:
        """Return the files that a worker wrote, after a comparison with those that are here."""
        if future.status != "finished":
            if future.status == "error":
                error = future.exception()
                if isinstance(error, StrataError):
                    raise StrataError(error.message, hint=error.hint or _UNCHANGED)
                raise self._failed(f"{type(error).__name__}: {_first_line(error)}")
            raise ConnectionError("its scheduler was lost, or cancelled a task")
        files: Mapping[str, tuple[int, int]] = future.result()
        for name, (_, expected) in files.items():
            path = self._folder.joinpath(*computation.part.home, name, part_name(bucket))
            with path.open("rb") as file:
                if checksum(file) != expected:
                    raise self._failed(f"{path} differs from the file that a worker wrote")
        return dict(files)

    def _stop(self, futures: list[Any]) -> None:
        """Cancel tasks. Those that run cannot be stopped: they fail without their files."""
        self._clear()
        if self._client.status == "running":
            self._client.cancel(futures, asynchronous=False, force=True)

    def _failed(self, reason: str) -> StrataError:
        return StrataError(
            f"{self._folder} could not be compacted on the cluster: {reason.rstrip('.')}.",
            hint=_UNCHANGED,
        )


def _problem(answer: Any) -> str:
    """Return the problem of a worker as a text: its answer, or the error of the question."""
    if isinstance(answer, str):
        return answer
    if "No module named 'dask_strata" in str(answer):
        return "it has no dask-strata, or another version"
    return f"{type(answer).__name__}: {_first_line(answer)}"


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:400] if lines else type(error).__name__
