"""A page among those of Dask's own dashboard: where the record is, and how much there is of it."""

from __future__ import annotations

import html
import logging
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.recorder.pipeline.engine import Engine

logger = logging.getLogger("dask_strata")

_REFRESH_SECONDS = 2

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{refresh}">
<title>dask-strata: {name}</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 15px/1.5 system-ui, sans-serif;
margin: 2rem; overflow-wrap: anywhere }} dt {{ font-weight: 600 }}</style></head>
<body><h1>Being recorded: {name}</h1><dl>{facts}</dl>
<p>In a terminal:</p><pre>dask-strata show --follow {path}
dask-strata serve {runs}</pre>
<p><a href="status">Dask's dashboard</a></p></body></html>"""


class DashboardPage:
    """The page of one recording, at ``strata`` beside Dask's ``status``.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Whose dashboard; one without an HTTP server gets no page.
    engine : Engine
        What records it.
    name : str
        Name of the run.
    """

    def __init__(self, scheduler: Any, engine: Engine, name: str) -> None:
        self._engine, self._name, self._scheduler = engine, name, scheduler
        self._home: Any = getattr(scheduler, "http_application", None)
        self._application: Any = None
        try:
            self._add()
        except Exception as error:  # noqa: BLE001  a page is never worth a cluster
            logger.warning("dask-strata has no page in Dask's dashboard: %s", error)

    def _add(self) -> None:
        if self._home is None:
            return
        from tornado.web import Application, RequestHandler

        page = self

        class Handler(RequestHandler):
            def get(self) -> None:
                self.set_header("Content-Security-Policy", _CSP)
                self.finish(page.html())

        # Whatever prefix Dask's pages have, ours has it, too.
        self._application = Application([(r".*/strata", Handler)])
        self._home.add_application(self._application)

    def remove(self) -> None:
        """Take the page out again."""
        if self._application is not None and self._application in self._home.applications:
            self._home.applications.remove(self._application)
        self._application = None

    def html(self) -> str:
        """Return the page as it is now."""
        engine, scheduler = self._engine, self._scheduler
        facts = {
            "record": str(engine.folder),
            "transitions of the scheduler": f"{scheduler.transition_counter:,}",
            "tasks that it knows": f"{len(scheduler.tasks):,}",
            "rows of the scheduler on record": f"{engine.rows:,}",
            "bytes of the scheduler on record": f"{engine.sink.written_bytes:,}",
            "trouble": str(engine.sink.trouble or "none"),
        }
        items = "".join(
            f"<dt>{html.escape(n)}</dt><dd>{html.escape(v)}</dd>" for n, v in facts.items()
        )
        return _PAGE.format(
            refresh=_REFRESH_SECONDS,
            name=html.escape(self._name),
            facts=items,
            path=html.escape(shlex.quote(str(engine.folder))),
            runs=html.escape(shlex.quote(str(engine.folder.parent))),
        )


_CSP = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
