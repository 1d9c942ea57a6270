"""Attaching recorders to a cluster and detaching them: by preload, or through a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask_strata.config import Settings, read_settings
from dask_strata.errors import RecordingError, StrataError
from dask_strata.recorder.copying.place import Marker
from dask_strata.recorder.copying.receiver import Receiver, copy_name
from dask_strata.recorder.environment.program import run_name
from dask_strata.recorder.environment.script_end import watch_end
from dask_strata.recorder.upload import folder_of_session
from dask_strata.store.copies.origin import Origin
from dask_strata.store.copies.place import absolute, is_url
from dask_strata.store.manifest import Manifest

logger = logging.getLogger("dask_strata")

#: Attribute of a preloaded client: its recorder, the id of the run that the client has to end if it
#: started one, and the thread that copies the run if it is elsewhere. Nothing else refers to a
#: client, so that Dask's own objects decide its end.
_RECORDER = "_dask_strata_recorder"

#: Longest wait for the scheduler's reply at the end of a recording.
_DETACH_SECONDS = 30

#: Addresses of schedulers in this process whose recording failed to start.
_failed: set[str] = set()


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
    recorder, run_id, receiver = vars(server).pop(_RECORDER, (None, None, None))
    try:
        if recorder is not None and not _connected(server):
            # Nothing can be sent, and Dask closes the client without waiting: its loop may end. A
            # client of the interpreter's last moments, as dask-mpi's, has to write its rows now.
            recorder.leave(wait=not threading.main_thread().is_alive())
            if receiver is not None:
                receiver.end()
            return
        if recorder is not None:
            await recorder.close()
        if run_id is not None:
            await _detach(server, run_id)
        if receiver is not None:
            await receiver.finish()
    except Exception as error:  # noqa: BLE001  the client must close
        logger.warning(
            "dask-strata could not stop recording a client: %s: %s", type(error).__name__, error
        )


def _connected(client: Any) -> bool:
    comm = getattr(client.scheduler_comm, "comm", None)
    return comm is not None and not comm.closed()


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
    watch_end(settings)
    runs = _to_join(await announced(client), client.id, settings.session)
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
    # Prefer the scheduler's own recording, which lasts longer than a block of another client.
    spec = runs[run_id] if run_id else min(runs.values(), key=lambda s: s.get("owner") is not None)
    receiver = None
    if settings.session:
        try:
            receiver = await copy_home(client, spec, settings, owned=run_id is not None)
        except RecordingError as error:
            logger.warning("dask-strata: %s", error.message)
    setattr(client, _RECORDER, (ClientRecorder(client, spec), run_id, receiver))
    if settings.session and run_id is None:
        noted_in = folder_of_session(settings)
        if noted_in is not None:
            copy = None if receiver is None else str(receiver.folder)
            note_joined(noted_in, settings.session, spec, copy)


def _to_join(
    runs: dict[str, dict[str, Any]], client: str, session: str | None
) -> dict[str, dict[str, Any]]:
    """Return the recordings that a client is to be part of.

    Others have the tasks of another client only, or were started by a client of another
    `dask-strata record` than this client's, which gets a recording of its own.
    """
    return {
        run_id: spec
        for run_id, spec in runs.items()
        if spec.get("only_client") in (None, client)
        and (
            session is None
            or spec.get("owner") is None
            or spec["settings"].get("session") == session
        )
    }


def note_joined(runs: Path, session: str, spec: dict[str, Any], copy: str | None = None) -> None:
    """Note for `dask-strata record` that the script joined a run that it did not start.

    Parameters
    ----------
    runs : Path
        Folder of all runs.
    session : str
        Id of the `dask-strata record` command.
    spec : dict
        The joined run, as its scheduler announces it.
    copy : str, optional
        Folder of the copy of the run on this machine.
    """
    runs.mkdir(parents=True, exist_ok=True)
    facts = {"folder": spec["folder"], "host": spec.get("host"), "copy": copy}
    facts["url"] = spec.get("url")
    with joined_note(runs, session).open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def joined_note(runs: Path, session: str) -> Path:
    """Return the path of the file that `note_joined` writes."""
    return runs / f".joined-{session}"


def records_client(client: Any) -> bool:
    """Return whether a client of this process is recorded."""
    return _RECORDER in vars(client) or "_graph_to_futures" in vars(client)


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

    If that fails, or is cancelled, nothing is left behind on the cluster.

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
        Run id, settings, host and folder of the recording. If ``spooled`` is true, the scheduler
        does not see the folder that the settings name.

    Raises
    ------
    RecordingError
        The scheduler cannot be reached or lacks a compatible dask-strata, or the folder cannot
        be created.
    """
    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    marker = None if is_url(settings.runs) else _marker(settings.runs)
    seen = None if marker is None else marker.path
    recorder = SchedulerRecorder(settings, name or run_name(settings), client.id, seen)
    # Cancelling the request would not stop the scheduler: wait for its answer, then detach.
    registering = asyncio.ensure_future(_register(client, recorder))
    try:
        await asyncio.shield(registering)
        return (await announced(client))[recorder.run_id]
    except BaseException as error:
        await _withdraw(client, recorder.run_id, registering)
        if isinstance(error, StrataError) or not isinstance(error, Exception):
            raise
        raise RecordingError(
            f"The scheduler at {client.scheduler.address} could not be recorded: "
            f"{type(error).__name__}: {error}."
        ) from error
    finally:
        if marker is not None:
            marker.remove()


def _marker(runs: str) -> Marker:
    try:
        return Marker(Path(runs))
    except OSError as error:
        raise RecordingError(
            f"This process cannot write {runs}: {error}.",
            hint="Choose a folder that it can write to.",
        ) from error


async def _withdraw(client: Any, run_id: str, registering: asyncio.Future[None]) -> None:
    """Detach after a failure, unless the scheduler's recorder has reported it and is gone."""
    await asyncio.wait([registering], timeout=_DETACH_SECONDS)
    failed = registering.exception() if registering.done() else None
    if failed is None or isinstance(failed.__cause__, OSError):
        with contextlib.suppress(Exception):  # the first failure is the one to report
            await asyncio.wait_for(_detach(client, run_id, discard=True), _DETACH_SECONDS)


async def _register(client: Any, recorder: Any) -> None:
    from distributed.comm import CommClosedError
    from distributed.protocol.pickle import dumps

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


async def copy_home(
    client: Any, spec: dict[str, Any], settings: Settings, *, owned: bool
) -> Receiver | None:
    """Copy a run to this machine while it is recorded; return None if it is here already.

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    spec : dict
        The run, as its scheduler announces it.
    settings : Settings
        The settings of this process, with the folder of runs.
    owned : bool
        Whether the recording ends with this client.

    Raises
    ------
    RecordingError
        The run is elsewhere and cannot be copied.
    """
    runs, there = folder_of_session(settings), Path(spec["folder"])
    if "url" in spec or runs is None:
        return None
    with contextlib.suppress(StrataError):
        # A spool may be visible here, too, but it is removed at the end.
        if not spec.get("spooled") and Manifest.read(there).run_id == spec["run"]:
            return None
    origin = Origin(spec["run"], client.scheduler.address, str(spec.get("host")), str(there))
    if "host" not in spec:  # of an earlier version
        raise RecordingError(f"The run in {there}, where the scheduler is, cannot be copied.")
    folder = runs / copy_name(there.name)
    receiver = Receiver(client, origin, folder, settings.access, owned=owned)
    try:
        await receiver.start()
    except BaseException:
        await receiver.discard()
        raise
    return receiver


async def _detach(client: Any, run_id: str, *, discard: bool = False) -> None:
    from distributed.protocol.pickle import dumps

    from dask_strata.recorder.roles.scheduler import Detacher

    detacher = Detacher(run_id, discard=discard)
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
        self._settings = replace(settings, runs=absolute(settings.runs))
        self._name = name
        self._recorder: Any = None
        self._receiver: Receiver | None = None
        self._beginning: asyncio.Task[Any] | None = None
        self._spec: dict[str, Any] = {}

    @property
    def place(self) -> str:
        """Folder of the run on this machine, or its URL; available after `begin`."""
        folder = Path(self._spec["folder"]) if self._receiver is None else self._receiver.folder
        runs = self._settings.runs
        return f"{runs}/{folder.name}" if is_url(runs) else str(folder)

    def require_connection(self) -> None:
        """Raise an error if the client is closed, or not connected yet.

        Raises
        ------
        RecordingError
            The client is not connected.
        """
        if self.client.status != "running":
            raise RecordingError(
                f"The client is not connected to a scheduler: its status is {self.client.status}."
            )

    async def begin(self) -> None:
        """Start the recording. If that fails, nothing is left behind.

        Raises
        ------
        RecordingError
            The cluster cannot be recorded.
        """
        from dask_strata.recorder.roles.client import ClientRecorder

        self._beginning = asyncio.current_task()
        self._spec = await attach(self.client, self._settings, self._name)
        try:
            if self._spec.get("spooled"):
                self._receiver = await copy_home(
                    self.client, self._spec, self._settings, owned=True
                )
            self._recorder = ClientRecorder(self.client, self._spec)
        except BaseException:
            await self.discard()
            raise

    async def undo(self) -> None:
        """Undo `begin`, if it has not failed; after Ctrl-C it may still be on its way."""
        if self._beginning not in {None, asyncio.current_task()}:
            await asyncio.wait([self._beginning])
        if self._recorder is not None:
            await self.discard()

    async def discard(self) -> None:
        """End a recording that cannot be read on this machine, and remove it; never raises."""
        if self._recorder is not None:
            await self._recorder.close("detached")
        if self._receiver is not None:
            await self._receiver.discard()
        await self._detach(discard=True)

    async def end(self) -> None:
        """End the recording and detach from the cluster, if it still runs; never raises.

        A run that is recorded elsewhere is then copied to its end.
        """
        await self._recorder.close("detached")
        await self._detach()
        if self._receiver is not None:
            await self._receiver.finish()

    async def _detach(self, *, discard: bool = False) -> None:
        if self.client.status != "running":
            return
        ended = _detach(self.client, self._spec["run"], discard=discard)
        try:
            await asyncio.wait_for(ended, _DETACH_SECONDS)
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
        if self._receiver is not None:
            self._receiver.finish_blocking()
