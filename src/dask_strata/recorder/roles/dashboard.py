"""A page in Dask's dashboard: stuck tasks and workers, and the folder and size of the record."""

from __future__ import annotations

import html
import logging
import shlex
import time
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from dask_strata.schema.keys import split_wire_key
from dask_strata.schema.measured.stuck import CHECK_SECONDS, sentence
from dask_strata.store.copies.place import is_url, shown

if TYPE_CHECKING:
    from dask_strata.recorder.pipeline.engine import Engine
    from dask_strata.recorder.stuck.source import StuckSource

logger = logging.getLogger("dask_strata")

_REFRESH_SECONDS = 2

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{refresh}">
<title>dask-strata: {name}</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 15px/1.5 system-ui, sans-serif;
margin: 2rem; overflow-wrap: anywhere }} dt {{ font-weight: 600 }}</style></head>
<body><h1>Recording: {name}</h1>
<h2>Stuck now</h2>{stuck}
<h2>Record</h2><dl>{facts}</dl>
<p>In a terminal:</p><pre>dask-strata show --follow {path}
dask-strata serve {runs}</pre>
<p><a href="status">Dask's dashboard</a></p></body></html>"""


class DashboardPage:
    """The page of one recording, at the path ``strata`` of Dask's dashboard.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler. Without an HTTP server it gets no page.
    engine : Engine
        The scheduler's engine.
    name : str
        Name of the run.
    stuck : StuckSource
        The checks for stuck tasks and workers.
    """

    def __init__(self, scheduler: Any, engine: Engine, name: str, stuck: StuckSource) -> None:
        self._stuck = stuck
        self._engine, self._name, self._scheduler = engine, name, scheduler
        self._dashboard: Any = getattr(scheduler, "http_application", None)
        self._application: Any = None
        try:
            self._add()
        except Exception as error:  # noqa: BLE001  the cluster must start without the page
            logger.warning("dask-strata cannot add its page to Dask's dashboard: %s", error)

    def _add(self) -> None:
        if self._dashboard is None:
            return
        from tornado.web import Application, RequestHandler

        page = self

        class Handler(RequestHandler):
            def get(self) -> None:
                self.set_header("Content-Security-Policy", _CSP)
                self.finish(page.html())

        # Match any prefix that Dask's pages may have.
        self._application = Application([(r".*/strata", Handler)])
        self._dashboard.add_application(self._application)

    def remove(self) -> None:
        """Remove the page from the dashboard."""
        if self._application is not None and self._application in self._dashboard.applications:
            self._dashboard.applications.remove(self._application)
        self._application = None

    def html(self) -> str:
        """Return the page with the present counts."""
        engine, scheduler = self._engine, self._scheduler
        folder, runs = str(engine.folder), str(engine.folder.parent)
        if is_url(engine.settings.runs):
            runs = shown(engine.settings.runs)
            folder = f"{runs}/{engine.folder.name}"
        facts = {
            "folder": folder,
            "transitions of the scheduler": f"{scheduler.transition_counter:,}",
            "tasks of the scheduler": f"{len(scheduler.tasks):,}",
            "recorded rows of the scheduler": f"{engine.rows:,}",
            "recorded by the scheduler": format_bytes(engine.sink.written_bytes),
            "write error": str(engine.sink.error or "none"),
        }
        items = "".join(
            f"<dt>{html.escape(n)}</dt><dd>{html.escape(v)}</dd>" for n, v in facts.items()
        )
        return _PAGE.format(
            refresh=_REFRESH_SECONDS,
            name=html.escape(self._name),
            facts=items,
            stuck=self._stuck_html(),
            path=html.escape(shlex.quote(folder)),
            runs=html.escape(shlex.quote(runs)),
        )

    def _stuck_html(self) -> str:
        checked, rows = self._stuck.checked, self._stuck.present
        if checked is None:
            return f"<p>Not checked yet: there is a check every {CHECK_SECONDS:.0f} s.</p>"
        ago = format_time(max(time.time() - checked, 0.0))
        if not rows:
            return f"<p>Nothing is stuck. Checked {ago} ago.</p>"
        lines = (sentence({**row, "key": _shown_key(row)}, format_time) for row in rows)
        items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        return f"<ul>{items}</ul><p>Checked {ago} ago.</p>"


def _shown_key(row: dict[str, Any]) -> str:
    return "" if row["key"] is None else split_wire_key(row["key"])[0]


_CSP = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
