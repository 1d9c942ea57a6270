"""The public interface in Python: `open_run`, `compare`, `record`, `compact` and `doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import webbrowser
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from dask_strata import run as tables
from dask_strata.config import read_settings
from dask_strata.errors import RecordingError, StrataError, UsageError
from dask_strata.recorder.doctor import diagnosis
from dask_strata.recorder.session import Session
from dask_strata.store.copies.place import is_url, local_path, shown
from dask_strata.store.zipped.copy import refuse_bundle

logger = logging.getLogger("dask_strata")


class Table(tables.TableView):
    """One table of a run, with a display for notebooks."""

    def _repr_html_(self) -> str:
        from dask_strata.report.notebook import table_html

        return table_html(self)


class Task(tables.Task):
    """One task of a run; ``print(task)`` prints its events in time order.

    Attributes
    ----------
    key, key_type : str
        The text that Dask shows for the key, and the name of the key's type.
    """

    def __str__(self) -> str:
        from dask_strata.analysis.story import story
        from dask_strata.report.story import plain_story

        return plain_story(story(self))

    def _repr_html_(self) -> str:
        from dask_strata.report.page.page import story_html

        return story_html(self.run, self.key, self.key_type)

    @property
    def events(self) -> Iterator[Any]:
        """All recorded events of the task, in time order; see `dask_strata.analysis.story`."""
        from dask_strata.analysis.story import story

        return iter(story(self).events)


class Run(tables.Run):
    """A recorded run: its tables, and the analyses of them.

    Parameters
    ----------
    path : str or Path
        The run's folder.
    align : bool, optional
        Whether times of all processes are converted to the scheduler's clock.
    client : str, optional
        Show only tasks that this client submitted or requested: the id of the client, the start of
        its id, or the name of its script.

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        The run was written by a newer version of dask-strata.
    UsageError
        There is no such client.

    Examples
    --------
    >>> run = open_run("runs/2026-…")                            # doctest: +SKIP
    >>> run.tasks.to_pandas()                                    # doctest: +SKIP
    >>> run.sql("select prefix, count(*) from tasks group by 1") # doctest: +SKIP
    """

    table_class = Table
    task_class = Task

    def _repr_html_(self) -> str:
        from dask_strata.report.notebook import run_html

        return run_html(self)

    def summary(self) -> Any:
        """Return the first screen of the run: counts, times, insights.

        Returns
        -------
        dask_strata.analysis.summary.Summary
            Durations in seconds, sizes in bytes.
        """
        from dask_strata.analysis.overview.stored import summary_of

        return summary_of(self)

    def insights(self) -> Any:
        """Return the diagnoses of the run: faults first, then by what they cost.

        Returns
        -------
        tuple of dask_strata.analysis.diagnosis.Insight
            Each with cause, evidence, cost in seconds of the makespan, and advice; printed as a
            list, in notebooks as HTML. Empty if nothing stands out.
        """
        from dask_strata.report.notebook import Insights

        return Insights(self.summary().insights)

    def critical_path(self) -> Any:
        """Return the cause and the occupant of each second of the makespan.

        Returns
        -------
        dask_strata.analysis.critical_path.walk.CriticalPath
            Its segments follow each other without gaps.
        """
        from dask_strata.report.notebook import path_of

        return path_of(self)

    def report(self, path: str | os.PathLike[str], *, open: bool = False) -> Path:  # noqa: A002  agreed
        """Write the page of the run to a file, which needs no network.

        Parameters
        ----------
        path : str or path
            The file.
        open : bool, optional
            Whether to show it in the browser.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        StrataError
            The file cannot be written.
        """
        from dask_strata.report.page import write_page

        target = Path(path)
        write_page(self, target)
        if open:
            webbrowser.open(target.resolve().as_uri())
        return target

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        to: str,
        options: Collection[str] = (),
        leave_out: Collection[str] = (),
        **values: str,
    ) -> Any:
        """Write the run in the format of another tool.

        Parameters
        ----------
        path : str or path
            File to write, or a new folder; a URL for formats that can be sent.
        to : str
            Name of the format: perfetto, chrome, ro-crate, prov, wfformat, otlp, openmetrics,
            parquet, csv, sqlite, duckdb, bundle, or one of another package.
        options : collection of str, optional
            Options of the format, as `--with` on the command line.
        leave_out : collection of str, optional
            Classes of facts to leave out: code, paths, hosts, users, errors, environment or
            arguments.
        **values : str
            Choices of a format that have a value, such as ``license`` of ro-crate.

        Returns
        -------
        dask_strata.export.export.Exported
            Path, size in bytes, counts, and notes on what the output lacks.

        Raises
        ------
        UsageError
            There is no such format or option, or the path cannot be used.
        StrataError
            The run cannot be exported, or the output cannot be written.

        Examples
        --------
        >>> run.export("run.pftrace", to="perfetto")  # doctest: +SKIP
        """
        from dask_strata.export.export import export

        return export(self, to, path, options=options, values=values, leave_out=leave_out)

    def check(self) -> Any:
        """Compare the record with Dask's own counters.

        Returns
        -------
        dask_strata.analysis.check.check.Check
            How complete the record is (``grade``), whether it is for each task (``ok``), and
            the ``findings``.
        """
        from dask_strata.analysis.check import check

        return check(self)

    def lineage(self, key: Any, key_type: str | None = None) -> Any:
        """Return the inputs of a task and of all tasks that it depends on.

        Parameters
        ----------
        key : str or any key of Dask
            The key, or the text that Dask shows for it.
        key_type : str, optional
            Name of the key's type; needed only if two keys have the same text.

        Returns
        -------
        Lineage

        Raises
        ------
        UnknownTaskError
            No task, or more than one, has this key.
        """
        from dask_strata.analysis.lineage import lineage

        return lineage(self.task(key, key_type))

    def why(self, worker: str | int | None = None) -> Any:
        """Return why workers ended: whose act it was, and what ran, was held and was lost.

        Parameters
        ----------
        worker : str or int, optional
            Name, address, process or process id of one worker; by default all that ended.

        Returns
        -------
        Why
            ``print`` shows it.

        Raises
        ------
        UnknownWorkerError
            No such worker ended.
        """
        from dask_strata.analysis.why import why
        from dask_strata.report.why import ShownWhy

        return ShownWhy(**vars(why(self, worker)))

    def dependents_of(self, uri: str | os.PathLike[str]) -> Any:
        """Return the tasks, results and written files that depend on an input file.

        Parameters
        ----------
        uri : str or path
            File, store or folder, as named in the tables; a relative path is relative to the
            current working directory.

        Returns
        -------
        Dependents
        """
        from dask_strata.analysis.lineage import dependents_of

        return dependents_of(self, uri)


def open_run(path: str | Path, *, align: bool = True, client: str | None = None) -> Run:
    """Open a run. Tables are read on first use.

    Parameters
    ----------
    path : str or Path
        The run's folder, or its URL, such as ``s3://bucket/runs/2026-…``.
    align : bool, optional
        Whether times of all processes are converted to the scheduler's clock.
    client : str, optional
        Show only tasks that this client submitted or requested: the id of the client, the start of
        its id, or the name of its script.

    Returns
    -------
    Run

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        The run was written by a newer version of dask-strata.
    UsageError
        There is no such client.

    Examples
    --------
    >>> run = open_run("runs/2026-…")  # doctest: +SKIP
    >>> run.tasks.to_pandas()  # doctest: +SKIP
    """
    return Run(path, align=align, client=client)


def compare(
    *runs: Any,
    groups: Mapping[str, Any] | None = None,
    by: str | None = None,
    expect: str | Collection[str] = (),
    exclude_spoiled: bool = False,
) -> Any:
    """Compare runs: what differs, and what of it is more than noise.

    Parameters
    ----------
    *runs : Run, str, Path, or iterables of these
        Two runs are compared with each other; more are one group, unless `by` divides them. Two
        lists are two groups. A folder of runs stands for its runs.
    groups : mapping of str to runs, optional
        Groups by name, in place of `runs`; the first one is the baseline.
    by : str, optional
        Fact that divides the runs into groups: git-commit, tag, package.dask, a setting of Dask.
    expect : str or collection of str, optional
        Facts that are meant to differ; ``array.slicing`` stands for the settings of this section.
    exclude_spoiled : bool, optional
        Leave out runs that lost workers, ran tasks again, failed, or whose record is incomplete.

    Returns
    -------
    dask_strata.analysis.compare.Comparison
        Seconds and bytes; `to_arrow` and `to_pandas` return its tables, and ``print`` shows it.

    Raises
    ------
    UsageError
        The groups are empty or contain a run twice, or there is no such fact.
    StrataError
        A run cannot be read, or is still being recorded.

    Examples
    --------
    >>> found = compare(["runs/a1", "runs/a2"], ["runs/b1", "runs/b2"])  # doctest: +SKIP
    >>> found.to_pandas("effects")  # doctest: +SKIP
    """
    from dask_strata.analysis.compare import compare as compare_runs
    from dask_strata.report.comparison.shown import ShownComparison

    found = compare_runs(
        *runs, groups=groups, by=by, expect=expect, exclude_spoiled=exclude_spoiled
    )
    return ShownComparison(**vars(found))


def compact(run: str | Path | Run, *, client: Any = None) -> Any:
    """Write the recorded and the derived tables of a run as Parquet, and delete its segments.

    As ``dask-strata compact RUN``, which can be interrupted and repeated.

    Parameters
    ----------
    run : str, Path or Run
        The run, or its folder. A `Run` has to be opened again.
    client : distributed.Client, optional
        Compute the derived tables on the cluster of this client, a task for each bucket of keys.
        Its workers need this version of dask-strata, and see the run's folder at the same path. By
        default this process computes all of them.

    Returns
    -------
    Compaction
        ``rows`` of the run, ``segment_bytes`` before and ``parquet_bytes`` after.

    Raises
    ------
    NotARunError, NewerRunError
        The folder is not a run that this version can read.
    UsageError
        The run is at a URL, or the client is asynchronous.
    StrataError
        The Parquet cannot be written, or the cluster cannot compute it. The run is unchanged then.

    Examples
    --------
    >>> compact("runs/2026-…")  # doctest: +SKIP
    >>> compact("runs/2026-…", client=cluster.get_client())  # doctest: +SKIP
    """
    place = run.location if isinstance(run, tables.Run) else run
    if is_url(place):
        raise UsageError(
            f"{shown(place)} is a URL: a run is compacted in a folder.",
            hint="Use a folder, then: dask-strata upload FOLDER URL",
        )
    from dask_strata.analysis.overview.stored import store_summary

    folder = local_path(place)
    refuse_bundle(folder, "compact a run")
    if client is None:
        from dask_strata.run.finalise import finalise

        done = finalise(folder)
    else:
        from dask_strata.cluster.finalise import finalise_on

        done = finalise_on(client, folder)
    store_summary(folder)
    return done


class record:  # noqa: N801  used as a statement: `with record(...)`
    """Record a running cluster while a ``with`` block runs.

    Parameters
    ----------
    runs : str or Path, optional
        Folder in which the run's folder is created, or a URL that fsspec knows; by default the
        setting ``runs``.
    client : distributed.Client, optional
        A client of the cluster; the current one by default.
    name : str, optional
        Name of the run; by default that of the script, module or notebook.
    **settings
        Settings of dask-strata, with ``_`` for ``-`` and ``.``, for example ``code=False``.
        With ``clients="all"`` the run has the tasks of all clients of the cluster; by default it
        has the client's own tasks and those that they depend on.

    Raises
    ------
    SettingError
        A setting is unknown, or its value is invalid.
    UsageError
        There is no client, or it is asynchronous and the block is not ``async with``.

    Notes
    -----
    If the scheduler does not see the folder, it sends the run to this process, which writes it
    there. If the cluster cannot be recorded, the block runs nevertheless: the reason is logged, and
    each use of the run raises it as a `RecordingError`.

    Examples
    --------
    >>> with record("runs/", client=client) as run:      # doctest: +SKIP
    ...     client.submit(sum, [1, 2]).result()
    >>> run.tasks.to_pandas()                            # doctest: +SKIP

    In a coroutine, with any client: ``async with record("runs/", client=client) as run:``.
    """

    def __init__(
        self,
        runs: str | Path | None = None,
        *,
        client: Any = None,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        chosen = read_settings(**settings, runs=None if runs is None else str(runs))
        if chosen.clients is None:
            chosen = replace(chosen, clients="own")
        self._session = Session(_client(client), chosen, name)
        self._run: Run | None = None

    def __enter__(self) -> Run:
        client = self._session.client
        if client.asynchronous:
            raise UsageError(
                "This client is asynchronous: a plain `with` would block its event loop.",
                hint="Write: async with dask_strata.record(...) as run:",
            )
        try:
            self._session.require_connection()
            client.sync(self._session.begin)
            self._run = open_run(self._session.place)
        except BaseException as error:
            with contextlib.suppress(Exception):  # the client's loop may have ended
                client.sync(self._session.undo)
            if isinstance(error, Exception):  # the block must run, recorded or not
                return _not_recorded(error)
            raise
        return self._run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._run is None:
            return
        if self._session.client.status == "closed":  # its event loop may be closed, too
            self._session.leave()
        else:
            self._session.client.sync(self._session.end)
        self._settle(self._run)

    async def __aenter__(self) -> Run:
        try:
            self._session.require_connection()
            await self._on_client(self._session.begin)
            self._run = open_run(self._session.place)
        except BaseException as error:
            with contextlib.suppress(Exception):  # the client's loop may have ended
                await self._on_client(self._session.undo)
            if isinstance(error, Exception):  # the block must run, recorded or not
                return _not_recorded(error)
            raise
        return self._run

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._run is None:
            return
        client = self._session.client
        if client.status == "closed" and not client.asynchronous:  # as in `__exit__`
            await asyncio.to_thread(self._session.leave)
        else:
            await self._on_client(self._session.end)
        self._settle(self._run)

    async def _on_client(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine on the client's event loop: that of a synchronous client is another."""
        client = self._session.client
        if client.asynchronous:
            await action()
            return
        running = action()
        try:
            done = asyncio.run_coroutine_threadsafe(running, client.loop.asyncio_loop)
        except BaseException:
            running.close()
            raise
        await asyncio.wrap_future(done)

    def _settle(self, run: Run) -> None:
        try:
            run.refresh()
        except StrataError as error:  # an object store may be away: the user's code must go on
            logger.warning("dask-strata cannot read the run again: %s", error.message)


class NotRecorded:
    """Stands for the run of a `record` that could not start; using it raises the reason.

    Parameters
    ----------
    reason : str
        Why nothing is recorded.

    Examples
    --------
    >>> NotRecorded("The scheduler has no dask-strata.")
    <not recorded: The scheduler has no dask-strata.>
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __repr__(self) -> str:
        return f"<not recorded: {self._reason}>"

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # probes of notebooks and pickle
            raise AttributeError(name)
        raise RecordingError(f"Nothing was recorded: {self._reason}")


def _not_recorded(error: Exception) -> Run:
    """Log why nothing is recorded, and return an object whose use raises it."""
    reason = str(error) if isinstance(error, StrataError) else f"{type(error).__name__}: {error}"
    reason = " ".join(reason.split())
    logger.warning("dask-strata does not record: %s", reason)
    return cast("Run", NotRecorded(reason))


class Diagnosis(diagnosis.Diagnosis):
    """The answer of `doctor`; ``print`` shows it."""

    def __str__(self) -> str:
        from dask_strata.report.cluster.doctor import plain_diagnosis

        return plain_diagnosis(self)

    __repr__ = __str__


def doctor(client: Any = None) -> Any:
    """Return whether the cluster of a client is recorded, and the remedy otherwise.

    As ``dask-strata doctor ADDRESS``, for clusters that need a client of their own kind. Nothing
    is left behind on the cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        A client of the cluster; the current one by default.

    Returns
    -------
    Diagnosis
        ``recorded``, ``processes``, ``places`` and ``problems``; ``print`` shows all of it. With an
        asynchronous client, an awaitable of it.

    Raises
    ------
    UsageError
        There is no client.

    Examples
    --------
    >>> print(doctor(client))  # doctest: +SKIP
    """
    chosen = _client(client)
    return chosen.sync(_diagnose, chosen)


async def _diagnose(client: Any) -> Diagnosis:
    from dask_strata.recorder.doctor.cluster import diagnose_cluster

    return Diagnosis(**vars(await diagnose_cluster(client)))


def _client(client: Any) -> Any:
    from distributed import get_client

    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        raise UsageError(
            "There is no Dask client to record.",
            hint="Pass one: dask_strata.record(client=client).",
        ) from None
