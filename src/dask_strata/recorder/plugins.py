"""The plugins that Dask carries to workers and nannies, as names only.

What travels names functions of the standard library, of toolz and of Dask, and has no code in
it: any version of Python can read it. Where it is read, it looks for this module. A worker
whose dask-strata is older is handed to that one's own plugin; one that has none at all gets a
plugin of Dask's that does nothing but say so.
"""

from __future__ import annotations

import importlib
import logging
import operator
import pickle
from functools import partial
from typing import Any

import toolz.functoolz
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin
from distributed.protocol.pickle import loads

#: Where a recorded scheduler announces its runs: `Client.get_metadata([METADATA])`.
METADATA = "dask-strata"

#: Older than this no Python can be that Dask runs on.
_PROTOCOL = 4

#: Attribute of a recorded server: its recorders, by run.
_RECORDERS = "_dask_strata_recorders"

_SAID = "dask-strata does not record this worker: %s"

#: How long a plugin that has ended by itself stays with its server.
_FORGET_SECONDS = 30

logger = logging.getLogger("dask_strata")


def plugin_name(run: str) -> str:
    """Return the name of our plugins of a run, on scheduler, workers and nannies."""
    return f"dask-strata-{run}"


def dumps_worker_plugin(spec: dict[str, Any]) -> bytes:
    """Return the worker's plugin, ready for `Scheduler.register_worker_plugin`."""
    said = _Later(partial, _Later(getattr, logger, "warning"), _SAID)
    tell = operator.methodcaller(
        "log_event", plugin_name(spec["run"]), not_recorded("no dask-strata can be loaded there")
    )
    absent = WorkerPlugin()
    # Dask calls it with one argument, which it names.
    absent.setup = toolz.functoolz.Compose((tell, operator.itemgetter("worker"), dict))
    return _by_name(spec, "StrataWorkerPlugin", "dumps_worker_plugin", said, absent)


def dumps_nanny_plugin(spec: dict[str, Any]) -> bytes:
    """Return the nanny's plugin, ready for `Scheduler.register_nanny_plugin`."""
    # Its worker says what there is to say.
    silent = toolz.functoolz.return_none
    return _by_name(spec, "StrataNannyPlugin", "dumps_nanny_plugin", silent, NannyPlugin())


def not_recorded(reason: str) -> dict[str, str]:
    """Return the message of a worker to the scheduler's recorder: it is not recorded, and why."""
    return {"not-recorded": reason}


class _Later:
    """A call that is made where its pickle is read; all that it names must be there."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._made_of = function, arguments

    def __call__(self, *arguments: Any) -> _Later:
        return _Later(self, *arguments)

    def __reduce__(self) -> Any:
        return self._made_of


def _by_name(spec: dict[str, Any], plugin: str, older: str, when_absent: Any, absent: Any) -> bytes:
    find = _Later(toolz.functoolz.excepts, Exception, importlib.import_module, when_absent)
    module = find(__name__)
    # Asked for what no spec has, it answers with what stands in for the answer.
    stand_in = operator.methodcaller("get", "", pickle.dumps(absent, _PROTOCOL))
    theirs = _Later(toolz.functoolz.Compose, (loads, _Later(getattr, module, older, stand_in)))
    return pickle.dumps(_Later(getattr, module, plugin, theirs)(spec), _PROTOCOL)


class StrataWorkerPlugin(WorkerPlugin):
    """Records a worker from its setup to its teardown.

    Parameters
    ----------
    spec : dict
        As the scheduler's recorder announced it: run, folder, settings.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def setup(self, worker: Any) -> None:
        """Begin; a worker starts, recorded or not."""
        try:
            from dask_strata.recorder.roles.worker import WorkerRecorder

            if _keep(worker, self._spec, WorkerRecorder) is not None:
                worker.loop.add_callback(leave_if_over, worker, self._spec["run"])
        except Exception as error:  # noqa: BLE001  a worker must start, recorded or not
            reason = f"{type(error).__name__}: {error}"
            logger.warning(_SAID, reason)
            worker.log_event(plugin_name(self._spec["run"]), not_recorded(reason))

    async def teardown(self, worker: Any) -> None:
        """End."""
        await _let_go(worker, self._spec["run"])


class StrataNannyPlugin(NannyPlugin):
    """Records a nanny from its setup to its teardown.

    Parameters
    ----------
    spec : dict
        As the scheduler's recorder announced it: run, folder, settings.
    """

    restart = False

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    async def setup(self, nanny: Any) -> None:
        """Begin; a nanny starts, recorded or not. Dask may ask one twice, which joins just now."""
        try:
            from dask_strata.recorder.roles.nanny import NannyRecorder

            recorder = _keep(nanny, self._spec, NannyRecorder)
            if recorder is not None:
                # One whose worker is restarting is not told of the end: it asks when it is back.
                ask = partial(nanny.loop.add_callback, leave_if_over, nanny, self._spec["run"])
                recorder.on_worker = ask
                ask()
                await recorder.prepare()
        except Exception as error:  # noqa: BLE001  a nanny must start, recorded or not
            logger.warning(
                "dask-strata does not record this nanny: %s: %s", type(error).__name__, error
            )

    async def teardown(self, nanny: Any) -> None:
        """End."""
        await _let_go(nanny, self._spec["run"])


def _keep(server: Any, spec: dict[str, Any], make: Any) -> Any:
    """Have a server recorded; return the recorder, or None if there is one of that run."""
    recorders = vars(server).setdefault(_RECORDERS, {})
    if spec["run"] in recorders:
        return None
    try:
        recorders[spec["run"]] = make(server, spec)
    finally:
        _tidy(server)
    return recorders[spec["run"]]


async def _let_go(server: Any, run: str) -> None:
    recorder = vars(server).get(_RECORDERS, {}).pop(run, None)
    _tidy(server)
    if recorder is not None:
        await recorder.close()


def _tidy(server: Any) -> None:
    if not vars(server).get(_RECORDERS):
        vars(server).pop(_RECORDERS, None)


async def leave_if_over(server: Any, run: str) -> None:
    """Let go of a server that came, or came back, while the recording ended without it."""
    try:
        runs = await server.scheduler.get_metadata(keys=[METADATA], default=None)
    except Exception:  # noqa: BLE001  a scheduler that is gone is the end of the server, too
        return
    if run not in (runs or {}) and run in vars(server).get(_RECORDERS, {}):
        await _let_go(server, run)
        # It may be told all the same, and Dask is loud about a plugin that is not there.
        server.loop.call_later(_FORGET_SECONDS, server.plugins.pop, plugin_name(run), None)
