"""OTLP: a run as a trace of OpenTelemetry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dask_strata.errors import UsageError
from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.telemetry.otlp.http import Receiver
from dask_strata.export.telemetry.otlp.spans import Trace

if TYPE_CHECKING:
    from dask_strata.run import Run


class Otlp(Exporter):
    """OTLP's JSON: one request on each line, or sent to a receiver over HTTP."""

    name: ClassVar[str] = "otlp"
    summary: ClassVar[str] = "OpenTelemetry: OTLP/JSON lines, or sent to http://HOST:4318/v1/traces"
    suffix: ClassVar[str] = ".jsonl"
    media_type: ClassVar[str | None] = "application/x-ndjson"
    value_names: ClassVar[tuple[str, ...]] = ("headers",)
    url_targets: ClassVar[bool] = True

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write the trace of a run, a request on each line."""
        if job.values.get("headers"):
            raise UsageError(
                "A file has no headers: they are part of requests to a URL.",
                hint="Leave out --header, or give a URL: -o http://HOST:4318",
            )
        with path.open("xb") as file:
            file.writelines(Trace(run, job).requests())

    def send(self, run: Run, url: str, job: Job) -> None:
        """Send the trace of a run to a receiver."""
        with Receiver(url, job.values.get("headers", "")) as receiver:
            for request in Trace(run, job).requests():
                receiver.post(request)
        job.counts["requests"] = receiver.n_requests
        if receiver.rejected:
            job.note(f"The receiver rejected {receiver.rejected:,} spans: {receiver.reason}")
