"""Attaching recorders to a cluster and detaching them: by preload, or through a client."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask_strata.config import Settings, read_settings
from dask_strata.errors import RecordingError, StrataError

logger = logging.getLogger("dask_strata")

#: Recorders of this process's clients by client id, each with the id of the run that the client
#: has to end, if it started one.
_clients: dict[str, tuple[Any, str | None]] = {}

#: Longest wait for the scheduler's reply at the end of a recording.
_DETACH_SECONDS = 30

#: Addresses of schedulers in this process whose recording failed to start.
_failed: set[str] = set()


def run_name(settings: Settings) -> str:
    """Return the name of a run: as set, or by default that of the running script or command."""
    if settings.name:
        return settings.name
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    script = Path(sys.argv[0]).name if sys.argv else ""
    if script in ("dask", "dask-scheduler") and len(sys.argv) > 1:
        return "scheduler"
    if spec is not None and spec.name.startswith("distributed.cli"):
        return str(spec.name).rpartition(".")[2].replace("_", "-")
    if spec is not None:
        return str(spec.name).removesuffix(".__main__").rpartition(".")[2]
    path = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv else "")
    return Path(path).stem or "interactive"


async def setup(server: Any) -> None:
    """Record a scheduler or client that Dask preloads dask-strata into; never raises."""
    from distributed import Client, Scheduler

    try:
        settings = read_settings()
        if not settings.enabled:
            return
        if isinstance(server, Scheduler):
            await _setup_scheduler(server, settings)
        elif isinstance(server, Client):
            await _setup_client(server, settings)
        # The scheduler sends recorders to workers and nannies, through Dask's plugins.
    except StrataError as error:
        logger.warning("dask-strata does not record: %s", error)
    except Exception as error:  # noqa: BLE001  the cluster must start, recorded or not
        logger.warning("dask-strata does not record: %s: %s", type(error).__name__, error)


async def teardown(server: Any) -> None:
    """Stop recording a client that closes; recorders of servers end when the server has closed."""
    recorder, run_id = _clients.pop(getattr(server, "id", ""), (None, None))
    try:
        if recorder is not None:
            await recorder.close()
        if run_id is not None:
            await _detach(server, run_id)
    except Exception as error:  # noqa: BLE001  the client must close
        logger.warning(
            "dask-strata could not stop recording a client: %s: %s", type(error).__name__, error
        )


async def _setup_scheduler(scheduler: Any, settings: Settings) -> None:
    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    recorder = SchedulerRecorder(settings, run_name(settings))
    try:
        await recorder.start(scheduler)
    except Exception:  # noted, so that the client does not attach again
        _failed.add(scheduler.address)
        raise


async def _setup_client(client: Any, settings: Settings) -> None:
    from dask_strata.recorder.roles.client import ClientRecorder

    if _inside_worker():
        return
    runs = await announced(client)
    run_id = None
    if not runs and client.scheduler.address in _failed:
        return  # `setup` of the scheduler has logged a warning
    if not runs and settings.session:
        # The script runs under `dask-strata record`, but the scheduler was started elsewhere.
        run_id = (await attach(client, settings))["run"]
        runs = await announced(client)
    if not runs:
        logger.warning(
            "dask-strata does not record this client: the scheduler at %s is not recorded. "
            "Start it with --preload dask_strata, or use dask_strata.record(client=client).",
            client.scheduler.address,
        )
        return
    spec = runs[run_id] if run_id else list(runs.values())[-1]
    _clients[client.id] = ClientRecorder(client, spec), run_id
    if settings.session and run_id is None:
        note_joined(Path(settings.runs), settings.session, spec["folder"])


def note_joined(runs: Path, session: str, folder: str) -> None:
    """Note for `dask-strata record` that the script joined a run that it did not start.

    Parameters
    ----------
    runs : Path
        Folder of all runs.
    session : str
        Id of the `dask-strata record` command.
    folder : str
        Folder of the joined run.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with joined_note(runs, session).open("a", encoding="utf-8") as file:
        file.write(folder + "\n")


def joined_note(runs: Path, session: str) -> Path:
    """Return the path of the file that `note_joined` writes."""
    return runs / f".joined-{session}"


def records_client(client: Any) -> bool:
    """Return whether a client of this process is recorded."""
    return client.id in _clients or "_graph_to_futures" in vars(client)


def _inside_worker() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


async def announced(client: Any) -> dict[str, dict[str, Any]]:
    """Return the active recordings of the client's scheduler: their specs by run id."""
    runs = await client.scheduler.get_metadata(keys=["dask-strata"], default=None)
    return dict(runs) if isinstance(runs, dict) else {}


async def attach(client: Any, settings: Settings, name: str | None = None) -> dict[str, Any]:
    """Start recording a client's cluster; return the spec of the run.

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    settings : Settings
        What to record and where.
    name : str, optional
        Name of the run; see `run_name` for the default.

    Returns
    -------
    dict
        Run id, folder and settings of the recording.

    Raises
    ------
    RecordingError
        The scheduler cannot be reached or lacks a compatible dask-strata, or it cannot create
        the folder.
    """
    from distributed.comm import CommClosedError
    from distributed.protocol.pickle import dumps

    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    recorder = SchedulerRecorder(settings, name or run_name(settings), client.id)
    try:
        answer = await client.scheduler.register_scheduler_plugin(
            plugin=dumps(recorder), name=recorder.name, idempotent=True
        )
    except ImportError as error:
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} cannot record: {error}.",
            hint="Install the same version of dask-strata in the scheduler's environment.",
        ) from error
    except (AttributeError, TypeError) as error:
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} has an incompatible version of "
            f"dask-strata: {error}.",
            hint="Install the same version of dask-strata in the scheduler's environment.",
        ) from error
    except CommClosedError as error:
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} could not be reached: {error}."
        ) from error
    except ValueError as error:
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} refused to record: {error}.",
            hint="Start it with --preload dask_strata instead.",
        ) from error
    except OSError as error:
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} cannot write {recorder.folder}: {error}.",
            hint="Choose a folder that the scheduler's machine can write to.",
        ) from error
    if isinstance(answer, dict) and answer.get("status") == "error":
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} refused to record: "
            f"{answer.get('exception_text') or answer.get('message')}."
        )
    return (await announced(client))[recorder.run_id]


async def _detach(client: Any, run_id: str) -> None:
    from distributed.protocol.pickle import dumps

    from dask_strata.recorder.roles.scheduler import Detacher

    detacher = Detacher(run_id)
    await client.scheduler.register_scheduler_plugin(
        plugin=dumps(detacher), name=detacher.name, idempotent=False
    )
    await client.scheduler.unregister_scheduler_plugin(name=detacher.name)


class Session:
    """One recording of a running cluster, started and ended through a client.

    Parameters
    ----------
    client : distributed.Client
        A connected client, synchronous or asynchronous.
    settings : Settings
        What to record and where.
    name : str, optional
        Name of the run; see `run_name` for the default.
    """

    def __init__(self, client: Any, settings: Settings, name: str | None = None) -> None:
        self.client = client
        self._settings = replace(settings, runs=os.path.abspath(settings.runs))
        self._name = name
        self._recorder: Any = None
        self._spec: dict[str, Any] = {}

    @property
    def folder(self) -> Path:
        """Folder of the run; available after `begin`."""
        return Path(self._spec["folder"])

    async def begin(self) -> None:
        """Start the recording.

        Raises
        ------
        RecordingError
            The cluster cannot be recorded.
        """
        from dask_strata.recorder.roles.client import ClientRecorder

        self._spec = await attach(self.client, self._settings, self._name)
        try:
            self._recorder = ClientRecorder(self.client, self._spec)
        except BaseException:
            await _detach(self.client, self._spec["run"])
            raise

    async def end(self) -> None:
        """End the recording and detach from the cluster, if it still runs; never raises."""
        await self._recorder.close("detached")
        if self.client.status != "running":
            return
        try:
            await asyncio.wait_for(_detach(self.client, self._spec["run"]), _DETACH_SECONDS)
        except Exception as error:  # noqa: BLE001  must not hide an exception of the `with` block
            logger.warning(
                "dask-strata could not detach from %s: %s: %s",
                self.client.scheduler.address,
                type(error).__name__,
                error,
            )

    def leave(self) -> None:
        """End the recording of a client that has closed; its event loop may have ended, too."""
        self._recorder.leave("detached")
