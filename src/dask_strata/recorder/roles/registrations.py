"""Workers that the scheduler refuses to register, as with a name that another worker has."""

from __future__ import annotations

from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.roles.handlers import HandlerHook
from dask_strata.schema.values import REFUSED

_HANDLER = "register-worker"


class RegistrationHook(HandlerHook):
    """Adds a row of ``worker_events`` for each registration that does not succeed.

    It replaces the scheduler's handler of registrations, which runs once for each worker.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    engine : Engine
        Gets the rows.
    """

    def __init__(self, scheduler: Any, engine: Engine) -> None:
        self._scheduler = scheduler
        self._engine: Engine | None = engine
        self._accepted: set[str] = set()
        super().__init__(scheduler, _HANDLER, self._register)

    def accepted(self, ws: Any) -> None:
        """Note that the scheduler has added a worker; called on the event loop."""
        self._accepted.add(ws.server_id)

    # Dask passes the connection only to functions whose first parameter is named `comm`.
    async def _register(self, comm: Any, **message: Any) -> Any:
        name = message.get("name")
        taken = name in self._scheduler.aliases  # as Dask tests it, in the same turn of the loop
        reason = f"name taken, {name}" if taken else None
        try:
            # This lasts until the worker leaves.
            return await self.original(comm, **message)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._ended(message, reason)

    def _ended(self, message: dict[str, Any], reason: str | None) -> None:
        server_id = message.get("server_id", "")
        if server_id in self._accepted:
            self._accepted.discard(server_id)
        elif self._engine is not None and not self._engine.finished:
            self._engine.add(
                "worker_events",
                time=now_ns(),
                worker=clip(str(message.get("address")), 1000),
                name=clip(str(message.get("name")), 1000),
                action=REFUSED,
                reason=reason and redact_text(clip(reason, 10_000)),
            )

    def remove(self) -> None:
        """Restore the scheduler's handler, or take this one out from under that of another run."""
        self._engine = None  # the registrations of workers that are still there refer to this hook
        self.restore()
