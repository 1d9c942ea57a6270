"""The plugins that Dask sends to workers and nannies, and their pickles.

The pickles contain no code, only names of functions of the standard library, toolz and Dask. So
any version of Python can load them. On loading they import this module by name:

- If the import succeeds, the result is the plugin class of the installed version.
- If the installed version is older and lacks the class, the result is that version's own plugin.
- If dask-strata cannot be imported, the result is a plain plugin of Dask that only reports this.
"""

from __future__ import annotations

import importlib
import logging
import operator
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import toolz.functoolz
from distributed.core import Status
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin
from distributed.protocol.pickle import loads

#: Key of the metadata in which a scheduler announces its runs: `Client.get_metadata([METADATA])`.
METADATA = "dask-strata"

#: Pickle protocol that every Python supported by Dask can read.
_PROTOCOL = 4

#: Attribute of a recorded server that holds its recorders by run id.
_RECORDERS = "_dask_strata_recorders"

_WARNING = "dask-strata does not record this worker: %s"

#: Delay in seconds before a plugin that detached itself is removed from its server.
_REMOVAL_SECONDS = 30

_CLOSING = (
    Status.closing,
    Status.closing_gracefully,
    Status.stopping,
    Status.closed,
    Status.failed,
)

logger = logging.getLogger("dask_strata")


def plugin_name(run_id: str) -> str:
    """Return the name of a run's plugins on the scheduler, workers and nannies.

    Parameters
    ----------
    run_id : str
        Id of the run.

    Examples
    --------
    >>> plugin_name("0a1b2c3d")
    'dask-strata-0a1b2c3d'
    """
    return f"dask-strata-{run_id}"


def dumps_worker_plugin(spec: dict[str, Any]) -> bytes:
    """Return the pickled worker plugin for `Scheduler.register_worker_plugin`.

    Parameters
    ----------
    spec : dict
        The recording: run id, folder and settings.
    """
    warn = _Later(partial, _Later(getattr, logger, "warning"), _WARNING)
    report = operator.methodcaller(
        "log_event", plugin_name(spec["run"]), not_recorded("dask-strata cannot be imported there")
    )
    absent = WorkerPlugin()
    # Dask calls `setup(worker=worker)`: `dict` collects the keyword, `itemgetter` selects it.
    absent.setup = toolz.functoolz.Compose((report, operator.itemgetter("worker"), dict))
    return _dumps(spec, "StrataWorkerPlugin", "dumps_worker_plugin", warn, absent)


def dumps_nanny_plugin(spec: dict[str, Any]) -> bytes:
    """Return the pickled nanny plugin for `Scheduler.register_nanny_plugin`.

    Parameters
    ----------
    spec : dict
        The recording: run id, folder and settings.
    """
    # The worker reports that dask-strata cannot be imported.
    silent = toolz.functoolz.return_none
    return _dumps(spec, "StrataNannyPlugin", "dumps_nanny_plugin", silent, NannyPlugin())


def not_recorded(reason: str) -> dict[str, str]:
    """Return the message to the scheduler's recorder that a worker is not recorded.

    >>> not_recorded("no space left")
    {'not-recorded': 'no space left'}
    """
    return {"not-recorded": reason}


class _Later:
    """A function call that is made when its pickle is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __call__(self, *arguments: Any) -> _Later:
        return _Later(self, *arguments)

    def __reduce__(self) -> Any:
        return self._call


def _dumps(spec: dict[str, Any], plugin: str, older: str, when_absent: Any, absent: Any) -> bytes:
    """Return a pickle that finds the plugin of the version installed where it is loaded.

    `when_absent` is called with the exception if dask-strata cannot be imported; the plugin is
    then `absent`.
    """
    find = _Later(toolz.functoolz.excepts, Exception, importlib.import_module, when_absent)
    module = find(__name__)
    # Called with a spec, which has no key "", it returns the pickle of `absent`.
    dumps_absent = operator.methodcaller("get", "", pickle.dumps(absent, _PROTOCOL))
    fallback = _Later(
        toolz.functoolz.Compose, (loads, _Later(getattr, module, older, dumps_absent))
    )
    return pickle.dumps(_Later(getattr, module, plugin, fallback)(spec), _PROTOCOL)


class StrataWorkerPlugin(WorkerPlugin):
    """Records a worker from its setup to its teardown.

    Parameters
    ----------
    spec : dict
        The recording, as the scheduler's recorder announced it: run id, folder and settings.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def setup(self, worker: Any) -> None:
        """Start the recording. An error is logged and reported to the scheduler, never raised."""
        try:
            from dask_strata.recorder.roles.worker import WorkerRecorder

            recorder = _attach(worker, self._spec, WorkerRecorder)
            if recorder is not None:
                recorder.on_heartbeat = _look(worker, self._spec["run"])
        except Exception as error:  # noqa: BLE001  the worker must start, recorded or not
            reason = f"{type(error).__name__}: {error}"
            logger.warning(_WARNING, reason)
            worker.log_event(plugin_name(self._spec["run"]), not_recorded(reason))

    async def teardown(self, worker: Any) -> None:
        """End the recording."""
        await _detach(worker, self._spec["run"])


class StrataNannyPlugin(NannyPlugin):
    """Records a nanny from its setup to its teardown.

    Parameters
    ----------
    spec : dict
        The recording, as the scheduler's recorder announced it: run id, folder and settings.
    """

    restart = False

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    async def setup(self, nanny: Any) -> None:
        """Start the recording; Dask may call this twice while a nanny connects."""
        try:
            from dask_strata.recorder.roles.nanny import NannyRecorder

            recorder = _attach(nanny, self._spec, NannyRecorder)
            if recorder is not None:
                # A nanny whose worker restarts misses the end of the recording, so look for the
                # announcement after each start of a worker.
                recorder.on_worker = _look(nanny, self._spec["run"])
                recorder.on_worker()
                await recorder.prepare()
        except Exception as error:  # noqa: BLE001  the nanny must start, recorded or not
            logger.warning(
                "dask-strata does not record this nanny: %s: %s", type(error).__name__, error
            )

    async def teardown(self, nanny: Any) -> None:
        """End the recording."""
        await _detach(nanny, self._spec["run"])


def _attach(server: Any, spec: dict[str, Any], make: Any) -> Any:
    """Attach a recorder to a server and return it, or None if it already has one of this run."""
    recorders = vars(server).setdefault(_RECORDERS, {})
    if spec["run"] in recorders:
        return None
    try:
        recorders[spec["run"]] = make(server, spec)
    finally:
        _remove_if_empty(server)
    return recorders[spec["run"]]


def recorded_runs(server: Any) -> list[str]:
    """Return the ids of the runs that record a worker or nanny.

    Parameters
    ----------
    server : distributed.Worker or distributed.Nanny
        The server.
    """
    return list(vars(server).get(_RECORDERS, {}))


async def _detach(server: Any, run_id: str) -> None:
    recorder = vars(server).get(_RECORDERS, {}).pop(run_id, None)
    _remove_if_empty(server)
    if recorder is not None:
        await recorder.close()


def _remove_if_empty(server: Any) -> None:
    if not vars(server).get(_RECORDERS):
        vars(server).pop(_RECORDERS, None)


def _look(server: Any, run_id: str) -> Callable[[], None]:
    """Return a thread-safe function that makes a server look for the announcement of its run."""
    return partial(server.loop.add_callback, detach_if_revoked, server, run_id)


async def detach_if_revoked(server: Any, run_id: str) -> None:
    """Detach from a worker or nanny if the scheduler no longer announces the run.

    This covers servers that connected, or reconnected, while the recording ended.

    Parameters
    ----------
    server : distributed.Worker or distributed.Nanny
        The server, on whose event loop this runs.
    run_id : str
        Id of the run.
    """
    if server.status in _CLOSING:  # its scheduler may have closed, and Dask would retry for long
        return
    try:
        runs = await server.scheduler.get_metadata(keys=[METADATA], default=None)
    except Exception as error:  # noqa: BLE001  comms fail in any way; the recording goes on
        # Without a scheduler the server ends, and the recording with it.
        logger.debug("dask-strata could not ask whether %s still records: %s", run_id, error)
        return
    if run_id not in (runs or {}) and run_id in vars(server).get(_RECORDERS, {}):
        await _detach(server, run_id)
        # Remove the plugin later: the scheduler may still request its removal, and Dask logs an
        # error if the plugin is missing then.
        server.loop.call_later(_REMOVAL_SECONDS, server.plugins.pop, plugin_name(run_id), None)
