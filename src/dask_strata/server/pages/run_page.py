"""The page of a run, its state, and the run as a file."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.overview.stuck import stuck_of
from dask_strata.analysis.summary import Summary
from dask_strata.errors import UsageError
from dask_strata.export.export import export
from dask_strata.export.registry import exporter, exporters
from dask_strata.report.page.page import make_page
from dask_strata.report.summary import headline
from dask_strata.report.terminal.stuck import heading
from dask_strata.report.words import visible
from dask_strata.run import Run, open_run
from dask_strata.server.page import Page
from dask_strata.server.tar import tar_of
from dask_strata.store.manifest import BUNDLE_SUFFIX
from dask_strata.store.summaries.notes import readable_notes

_CHUNK = 1 << 20

#: Seconds after which a browser is shown that the page of a run is being made.
_PATIENCE_SECONDS = 1.5

#: The policy of a run's page, and what the server's bar above it needs in addition.
_POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")([^"]*)"')
_SOURCES = (
    ("script-src ", "script-src 'self' "),
    ("style-src ", "style-src 'self' "),
    ("form-action 'none'", "form-action 'self'; connect-src 'self'"),
)
_BODY = re.compile(r"<body[^>]*>")


class OneRun(Page):
    """The page of a run with the server's bar above it."""

    async def get(self, name: str) -> None:
        """Respond with the page; after a moment, with one that waits for it."""
        context = self.context
        await self.in_short_thread(context.runs.path, name)
        making = context.making.get(name)
        if making is None:
            making = asyncio.ensure_future(self.in_thread(context.runs.page, name, make_page))
            context.making[name] = making
            making.add_done_callback(partial(_made, context.making, name))
        await asyncio.wait({making}, timeout=_PATIENCE_SECONDS)
        present = making.result() if making.done() else context.runs.present_page(name)
        if present is None:
            self.show("making.html", name=name)
            return
        page, mark = present
        bar = await self.in_thread(self._bar, name, mark)
        # Its own policy is in the page: this one adds what pages cannot state.
        self.set_header("Content-Security-Policy", "frame-ancestors 'self'")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        await self.send_text(await self.in_thread(with_bar, page, bar))

    def _bar(self, name: str, mark: str) -> str:
        """Return the bar as HTML."""
        run = self.context.runs.run(name)
        notes = readable_notes(run.path)
        return self.context.templates.get_template("bar.html").render(
            name=name,
            run_name=run.name,
            mark=mark,
            # A page that is older than the record waits for the next one, too.
            is_live=run.is_growing or mark != self.context.runs.mark(name),
            notes=notes,
            exports=[each for each in exporters().values() if each.media_type is not None],
        )

    async def send_text(self, page: str) -> None:
        """Send a page in pieces."""
        data = page.encode("utf-8", "replace")
        for start in range(0, len(data), _CHUNK):
            await self.send(data[start : start + _CHUNK])


def _made(making: dict[str, asyncio.Future[Any]], name: str, done: asyncio.Future[Any]) -> None:
    making.pop(name, None)
    if not done.cancelled():
        done.exception()  # a request that waits for it reports it; otherwise nobody needs it


def with_bar(page: str, bar: str) -> str:
    """Return the page of a run with a bar above it, whose script and style come from the server.

    Parameters
    ----------
    page : str
        The page, as HTML.
    bar : str
        The bar, as HTML.
    """

    def widened(found: re.Match[str]) -> str:
        policy = found[2]
        for own, wider in _SOURCES:
            policy = policy.replace(own, wider)
        return f'{found[1]}{policy}"'

    page = _POLICY.sub(widened, page, count=1)
    head = (
        '<link rel="stylesheet" href="/assets/bar.css">'
        '<script src="/assets/bar.js" defer></script></head>'
    )
    page = page.replace("</head>", head, 1)
    body = _BODY.search(page)
    end = len(page) if body is None else body.end()
    return page[:end] + bar + page[end:]


class RunPage(OneRun):
    """The page of a run, as `dask-strata report` writes it."""

    async def get(self, name: str) -> None:
        """Respond with the page; it contains its own content security policy."""
        page, _ = await self.in_thread(self.context.runs.page, name, make_page)
        self.set_header("Content-Security-Policy", "frame-ancestors 'self'")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        await self.send_text(page)


class State(Page):
    """State and headline of a run as JSON, with which an open page updates itself."""

    async def get(self, name: str) -> None:
        """Respond with the state."""

        def state() -> dict[str, Any]:
            run = self.context.runs.run(name)
            summary = summary_of(run)
            found = {
                "mark": self.context.runs.mark(name),
                "state": summary.state,
                "outcome": summary.outcome,
            }
            return found | {"headline": _headline(run, summary)}

        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(await self.in_thread(state)))


def _headline(run: Run, summary: Summary) -> str:
    """Return the headline of a run, with its stuck tasks and workers."""
    stuck = stuck_of(run, summary.outcome)
    more = "" if stuck is None else f"  {heading(stuck)}: {visible(' · '.join(stuck.lines()))}"
    return str(headline(summary)) + more


class RunFile(Page):
    """Download of a run's folder as a tar archive."""

    async def get(self, name: str) -> None:
        """Send the archive in pieces while it is made."""
        path, kept = await self.in_thread(self.context.runs.folder_of, name)
        self.set_header("Content-Type", "application/x-tar")
        self.set_header("Content-Disposition", 'attachment; filename="run.tar"')
        pieces = tar_of(path)
        while (piece := await self.in_thread(next, pieces, None)) is not None:
            await self.send(piece)
        del kept


class ExportFile(Page):
    """Download of a run in the format of another tool."""

    async def get(self, name: str) -> None:
        """Write the export to a temporary file, and send the file in pieces."""
        to = self.get_query_argument("to", "")
        chosen = exporter(to)
        options = self.get_query_arguments("with")
        suffix, media_type = chosen.output(options)
        if media_type is None:
            raise UsageError(
                f"{to} is a folder, which cannot be downloaded.",
                hint="Download the whole run, or choose a format that is one file.",
            )
        place = await self.in_short_thread(self.context.runs.path, name)
        left_out = [each for each in ("code", "paths", "hosts") if self.is_on(f"no_{each}")]
        with tempfile.TemporaryDirectory(prefix="dask-strata-") as folder:
            path = Path(folder) / f"{name.removesuffix(BUNDLE_SUFFIX)}{suffix}"

            def write() -> None:
                # A run of its own: the pages' one would wait until the last row was read.
                export(open_run(place), to, path, options=options, leave_out=left_out)

            await self.in_thread(write)
            self.set_header("Content-Type", media_type)
            self.set_header("Content-Disposition", _attachment(path.name))
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    await self.send(piece)

    def is_on(self, name: str) -> bool:
        """Return whether a box of the form is checked."""
        return bool(self.get_query_argument(name, "") == "on")


def _attachment(name: str) -> str:
    """Return the header that has the browser save a file under a name."""
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, errors='replace')}"
