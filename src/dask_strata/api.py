"""The public interface in Python: `open_run`, `record` and `doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from dask_strata import run as tables
from dask_strata.config import read_settings
from dask_strata.errors import UsageError
from dask_strata.recorder.doctor import diagnosis
from dask_strata.recorder.session import Session


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

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        The run was written by a newer version of dask-strata.

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

    def check(self) -> Any:
        """Compare the record with Dask's own counters.

        Returns
        -------
        dask_strata.analysis.check.check.Check
            Whether the record is complete (``ok``), and the ``findings``.
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


def open_run(path: str | Path, *, align: bool = True) -> Run:
    """Open the folder of a run. Tables are read on first use.

    Parameters
    ----------
    path : str or Path
        The run's folder.
    align : bool, optional
        Whether times of all processes are converted to the scheduler's clock.

    Returns
    -------
    Run

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        The run was written by a newer version of dask-strata.

    Examples
    --------
    >>> run = open_run("runs/2026-…")  # doctest: +SKIP
    >>> run.tasks.to_pandas()  # doctest: +SKIP
    """
    return Run(path, align=align)


class record:  # noqa: N801  used as a statement: `with record(...)`
    """Record a running cluster while a ``with`` block runs.

    Parameters
    ----------
    runs : str or Path, optional
        Folder in which the run's folder is created; by default the setting ``runs``.
    client : distributed.Client, optional
        A client of the cluster; the current one by default.
    name : str, optional
        Name of the run; by default the name of the script.
    **settings
        Settings of dask-strata, with ``_`` for ``-`` and ``.``, for example ``code=False``.

    Raises
    ------
    SettingError
        A setting is unknown, or its value is invalid.
    RecordingError
        The cluster cannot be recorded.
    UsageError
        There is no client, or it is asynchronous and the block is not ``async with``.

    Examples
    --------
    >>> with record("runs/", client=client) as run:      # doctest: +SKIP
    ...     client.submit(sum, [1, 2]).result()
    >>> run.tasks.to_pandas()                            # doctest: +SKIP

    With an asynchronous client: ``async with record("runs/", client=client) as run:``.
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
        self._session = Session(_client(client), chosen, name)
        self._run: Run | None = None

    def __enter__(self) -> Run:
        client = self._session.client
        if client.asynchronous:
            raise UsageError(
                "This client is asynchronous: a plain `with` would block its event loop.",
                hint="Write: async with dask_strata.record(...) as run:",
            )
        client.sync(self._session.begin)
        self._run = open_run(self._session.folder)
        return self._run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._session.client.status == "closed":  # its event loop may be closed, too
            self._session.leave()
        else:
            self._session.client.sync(self._session.end)
        self._settle()

    async def __aenter__(self) -> Run:
        await self._session.begin()
        self._run = open_run(self._session.folder)
        return self._run

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._session.end()
        self._settle()

    def _settle(self) -> None:
        if self._run is not None:
            self._run.refresh()


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
