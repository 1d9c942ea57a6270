"""Attaching and detaching: by preload, and from a client that is connected."""

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

_clients: dict[str, tuple[Any, str | None]] = {}

#: How long the end of a recording waits for a scheduler that does not answer.
_DETACH_SECONDS = 30

#: Addresses of schedulers in this process that could not be recorded.
_refused: set[str] = set()


def run_name(settings: Settings) -> str:
    """Return the run's name: as set, or after the script or command that runs here."""
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
    """Attach to a server or client that Dask preloads us into. Never raises."""
    from distributed import Client, Scheduler

    try:
        settings = read_settings()
        if not settings.enabled:
            return
        if isinstance(server, Scheduler):
            await _setup_scheduler(server, settings)
        elif isinstance(server, Client):
            await _setup_client(server, settings)
        # Workers and nannies get their recorders from the scheduler, through Dask's plugins.
    except StrataError as error:
        logger.warning("dask-strata does not record: %s", error)
    except Exception as error:  # noqa: BLE001  nothing of ours may keep a cluster from starting
        logger.warning("dask-strata does not record: %s: %s", type(error).__name__, error)


async def teardown(server: Any) -> None:
    """Detach from a client that closes; servers are left when they have closed."""
    recorder, run = _clients.pop(getattr(server, "id", ""), (None, None))
    try:
        if recorder is not None:
            await recorder.close()
        if run is not None:
            await _detach(server, run)
    except Exception as error:  # noqa: BLE001  a client must close
        logger.warning("dask-strata: %s: %s", type(error).__name__, error)


async def _setup_scheduler(scheduler: Any, settings: Settings) -> None:
    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    recorder = SchedulerRecorder(settings, run_name(settings))
    try:
        await recorder.start(scheduler)
    except Exception:  # passed on; whatever it was, the client need not try again
        _refused.add(scheduler.address)
        raise


async def _setup_client(client: Any, settings: Settings) -> None:
    from dask_strata.recorder.roles.client import ClientRecorder

    if _inside_worker():
        return
    runs = await announced(client)
    run = None
    if not runs and client.scheduler.address in _refused:
        return  # it has said so itself
    if not runs and settings.session:
        # Under `dask-strata record`, with a scheduler that was started elsewhere.
        run = (await attach(client, settings))["run"]
        runs = await announced(client)
    if not runs:
        logger.warning(
            "dask-strata does not record this client: the scheduler at %s is not recorded. "
            "Start it with --preload dask_strata, or use dask_strata.record(client=client).",
            client.scheduler.address,
        )
        return
    spec = runs[run] if run else list(runs.values())[-1]
    _clients[client.id] = ClientRecorder(client, spec), run
    if settings.session and run is None:
        note_joined(Path(settings.runs), settings.session, spec["folder"])


def note_joined(runs: Path, session: str, folder: str) -> None:
    """Leave a note for `dask-strata record`: the script joined a run that it did not start."""
    runs.mkdir(parents=True, exist_ok=True)
    with joined_note(runs, session).open("a", encoding="utf-8") as file:
        file.write(folder + "\n")


def joined_note(runs: Path, session: str) -> Path:
    """Return the path of that note."""
    return runs / f".joined-{session}"


def _inside_worker() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


async def announced(client: Any) -> dict[str, dict[str, Any]]:
    """Return the runs that the client's scheduler is being recorded in, by id."""
    runs = await client.scheduler.get_metadata(keys=["dask-strata"], default=None)
    return dict(runs) if isinstance(runs, dict) else {}


async def attach(client: Any, settings: Settings, name: str | None = None) -> dict[str, Any]:
    """Begin to record the cluster that a client is connected to; return the run's spec.

    Raises
    ------
    RecordingError
        The scheduler cannot record: it lacks the package, or cannot write the folder.
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
            hint="Install the same dask-strata in the scheduler's environment.",
        ) from error
    except (AttributeError, TypeError) as error:
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} has another dask-strata, which does not "
            f"understand this one: {error}.",
            hint="Install the same dask-strata in the scheduler's environment.",
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
            hint="Give a folder that the scheduler's machine can write to.",
        ) from error
    if isinstance(answer, dict) and answer.get("status") == "error":
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} refused to record: "
            f"{answer.get('exception_text') or answer.get('message')}."
        )
    return (await announced(client))[recorder.run]


async def _detach(client: Any, run: str) -> None:
    from distributed.protocol.pickle import dumps

    from dask_strata.recorder.roles.scheduler import Detacher

    detacher = Detacher(run)
    await client.scheduler.register_scheduler_plugin(
        plugin=dumps(detacher), name=detacher.name, idempotent=False
    )
    await client.scheduler.unregister_scheduler_plugin(name=detacher.name)


class Session:
    """One recording of a running cluster, begun and ended through a client.

    Parameters
    ----------
    client : distributed.Client
        A connected client, synchronous or asynchronous.
    settings : Settings
        What to record and where.
    name : str, optional
        Name of the run.
    """

    def __init__(self, client: Any, settings: Settings, name: str | None = None) -> None:
        self.client = client
        self._settings = replace(settings, runs=os.path.abspath(settings.runs))
        self._name = name
        self._recorder: Any = None
        self._spec: dict[str, Any] = {}

    @property
    def folder(self) -> Path:
        """Folder of the run; known once it has begun."""
        return Path(self._spec["folder"])

    async def begin(self) -> None:
        """Attach; raises RecordingError if the cluster cannot be recorded."""
        from dask_strata.recorder.roles.client import ClientRecorder

        self._spec = await attach(self.client, self._settings, self._name)
        try:
            self._recorder = ClientRecorder(self.client, self._spec)
        except BaseException:
            await _detach(self.client, self._spec["run"])
            raise

    async def end(self) -> None:
        """Detach, and leave nothing behind. A cluster that is gone has nothing left."""
        await self._recorder.close("detached")
        if self.client.status != "running":
            return
        try:
            await asyncio.wait_for(_detach(self.client, self._spec["run"]), _DETACH_SECONDS)
        except Exception as error:  # noqa: BLE001  it must not hide an exception of the block
            logger.warning(
                "dask-strata could not detach from %s: %s: %s",
                self.client.scheduler.address,
                type(error).__name__,
                error,
            )

    def leave(self) -> None:
        """Do what can be done when the client has closed, and perhaps its event loop with it."""
        self._recorder.leave("detached")
