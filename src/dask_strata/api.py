"""Recording from Python: the recorder and the reader in one object."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from dask_strata.config import read_settings
from dask_strata.errors import UsageError
from dask_strata.recorder.session import Session
from dask_strata.run import Run, open_run


class record:  # noqa: N801  reads as a verb: `with record(...)`
    """Record a running cluster for as long as a block lasts.

    Parameters
    ----------
    runs : str or Path, optional
        Folder that the run's folder is made in; as configured by default.
    client : distributed.Client, optional
        A client of the cluster; the current one by default.
    name : str, optional
        Name of the run; the script's by default.
    **settings
        Any setting of dask-strata, with ``_`` for ``-``, for example ``code=False``.

    Raises
    ------
    SettingError
        A setting is unknown, or its value cannot be used.
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
                "This client is asynchronous: a plain `with` would have to block its event loop.",
                hint="Write: async with dask_strata.record(...) as run:",
            )
        client.sync(self._session.begin)
        self._run = open_run(self._session.folder)
        return self._run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._session.client.sync(self._session.end)
        self._settle()

    async def __aenter__(self) -> Run:
        await self._session.begin()
        self._run = open_run(self._session.folder)
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._session.end()
        self._settle()

    def _settle(self) -> None:
        if self._run is not None:
            self._run.refresh()


def _client(client: Any) -> Any:
    from distributed import get_client

    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        raise UsageError(
            "There is no Dask client to record.",
            hint="Give one: dask_strata.record(client=client).",
        ) from None
