"""The recorder of a client: the script, and the user's source line of each submission."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dask_strata.config import read_settings, understood
from dask_strata.recorder.environment.script import script_facts
from dask_strata.recorder.environment.static_facts import add_static_facts
from dask_strata.recorder.graphs.submissions import SubmissionSource
from dask_strata.recorder.interruptions import interruption_sources
from dask_strata.recorder.logs.source import record_logs
from dask_strata.recorder.pipeline.comm import sender
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.profiling.source import profile
from dask_strata.recorder.roles.last_clients import EndNotice
from dask_strata.recorder.roles.scaling import DecisionSource, remote_clusters
from dask_strata.recorder.sampling.calls import CallSource
from dask_strata.recorder.sampling.client import ClientSampler


class ClientRecorder(Source):
    """Records one client. Create and close it on the client's event loop.

    Parameters
    ----------
    client : distributed.Client
        The client, connected to a scheduler that is being recorded.
    spec : dict
        The recording, as the scheduler's recorder announced it: run id, folder and settings.
    """

    def __init__(self, client: Any, spec: dict[str, Any]) -> None:
        self._client, self._spec = client, spec
        send = sender(client.scheduler, f"dask-strata-{spec['run']}", client.loop)
        settings = read_settings(understood(spec["settings"])[0])
        self._engine = Engine("client", spec["run"], Path(spec["folder"]), settings, send)
        submissions = SubmissionSource(client, code=settings.code)
        decisions = DecisionSource(self._engine, partial(remote_clusters, client))
        sources: list[Source] = [self, submissions, decisions]
        sampler = None
        if settings.sampling:
            sampler = ClientSampler(client, self._engine.process, code=settings.code)
            sources += [sampler, CallSource(client, sampler.follow, code=settings.code)]
        sources += interruption_sources(settings, spec["run"])
        self._engine.start(*sources, *record_logs(self._engine), address=client.id)
        if sampler is not None:
            sampler.start()
        profile(self._engine)
        if self._engine.uses_loop or spec.get("spooled") or "url" in spec:
            notice = EndNotice(client, spec["run"], self._end_with_scheduler)
            self._engine.sources.append(notice)

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return the action that gathers facts of the client's process and script."""
        return [self._add_facts]

    def _add_facts(self) -> None:
        add_static_facts(self._engine, self._spec)
        # Last, because git may be slow.
        for name, value in script_facts(code=self._engine.settings.code):
            self._engine.add("script", name=name, value=value)

    def _end_with_scheduler(self) -> None:
        # `Client.shutdown` closes the client right after the scheduler.
        closing = self._client.status in {"closing", "closed"}
        self.leave("closed" if closing else "detached", wait=False)

    def end_reason(self) -> str | None:
        """Return ``"closed"`` if the client has closed."""
        return "closed" if self._client.status == "closed" else None

    async def close(self, reason: str = "closed") -> None:
        """End the recording and wait for the last rows, without blocking the event loop.

        Parameters
        ----------
        reason : str, optional
            Recorded as the process's ``exit_reason``.
        """
        await self._engine.finish_and_wait(reason)

    def leave(self, reason: str = "closed", *, wait: bool = True) -> None:
        """End the recording; on the event loop do not wait.

        Parameters
        ----------
        reason : str, optional
            Recorded as the process's ``exit_reason``.
        wait : bool, optional
            Whether to wait for the last rows.
        """
        self._engine.finish(reason, wait=wait)
