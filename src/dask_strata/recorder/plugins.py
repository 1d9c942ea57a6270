"""The plugins that Dask carries to workers and nannies.

They are pickled by value and import dask-strata only when they are set up: a worker that
does not have the package starts and works as if nobody was recording.
"""

from __future__ import annotations

from typing import Any

import cloudpickle


def dumps_worker_plugin(spec: dict[str, Any]) -> bytes:
    """Return the worker's plugin, ready for `Scheduler.register_worker_plugin`."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class StrataWorkerPlugin(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            import logging

            self.recorder = None
            try:
                from dask_strata.recorder.worker import WorkerRecorder

                self.recorder = WorkerRecorder(worker, spec)
            except Exception as error:  # noqa: BLE001  a worker must start, recorded or not
                logging.getLogger("dask_strata").warning(
                    "dask-strata does not record this worker: %s: %s", type(error).__name__, error
                )

        async def teardown(self, worker: Any) -> None:  # noqa: ARG002  as Dask calls it
            recorder, self.recorder = self.recorder, None
            if recorder is not None:
                await recorder.close()

    return _by_value(StrataWorkerPlugin)


def dumps_nanny_plugin(spec: dict[str, Any]) -> bytes:
    """Return the nanny's plugin, ready for `Scheduler.register_nanny_plugin`."""
    from distributed.diagnostics.plugin import NannyPlugin

    class StrataNannyPlugin(NannyPlugin):
        restart = False

        async def setup(self, nanny: Any) -> None:
            import logging

            self.recorder = None
            try:
                from dask_strata.recorder.nanny import NannyRecorder

                self.recorder = NannyRecorder(nanny, spec)
                await self.recorder.prepare()
            except Exception as error:  # noqa: BLE001  a nanny must start, recorded or not
                logging.getLogger("dask_strata").warning(
                    "dask-strata does not record this nanny: %s: %s", type(error).__name__, error
                )

        async def teardown(self, nanny: Any) -> None:  # noqa: ARG002  as Dask calls it
            recorder, self.recorder = self.recorder, None
            if recorder is not None:
                await recorder.close()

    return _by_value(StrataNannyPlugin)


def _by_value(plugin: type) -> bytes:
    # What cloudpickle cannot find by name it pickles whole.
    plugin.__module__ = "__main__"
    plugin.__qualname__ = plugin.__name__
    return cloudpickle.dumps(plugin())  # type: ignore[no-any-return]
