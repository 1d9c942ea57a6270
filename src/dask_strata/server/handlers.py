"""The pages: the list of runs, a run, a task, runs compared, SQL, and downloads."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from tornado.web import HTTPError

from dask_strata.analysis.compare import compare
from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.overview.stuck import stuck_of
from dask_strata.analysis.story import story
from dask_strata.analysis.summary import Summary
from dask_strata.errors import QueryError, UsageError
from dask_strata.export.export import export
from dask_strata.export.registry import exporter, exporters
from dask_strata.report.comparison.page import comparison_part
from dask_strata.report.formats import formats_of
from dask_strata.report.page.page import make_page
from dask_strata.report.page.templates import asset
from dask_strata.report.rows import write_rows
from dask_strata.report.summary import headline
from dask_strata.report.terminal.stuck import heading
from dask_strata.report.words import visible
from dask_strata.run import Run, open_run
from dask_strata.schema import TABLES
from dask_strata.server.page import LONGEST, Page, ServerContext, status_of
from dask_strata.server.sql import BusyError
from dask_strata.server.tar import tar_of
from dask_strata.store.manifest import BUNDLE_SUFFIX

#: Formats of a table that can be downloaded, by suffix.
_FORMATS = {f.suffix: f for f in formats_of(pa.Table) if f.media_type is not None}
_CHUNK = 1 << 20

#: Least number of runs of a comparison.
_LEAST_COMPARED = 2

_EXAMPLE = "select prefix, count(*) as n, sum(compute_seconds) as seconds from tasks group by 1"


def routes(context: ServerContext) -> list[Any]:
    """Return the handler of each address, as a pattern."""
    arguments = {"context": context}
    run = r"/runs/([^/]+)"
    pages: list[tuple[str, type[Page]]] = [
        (r"/", Runs),
        (run, OneRun),
        (rf"{run}/page", RunPage),
        (rf"{run}/state", State),
        (rf"{run}/story", TaskStory),
        (rf"{run}/sql", Sql),
        (rf"{run}/tables/([a-z_]+)({'|'.join(map(re.escape, _FORMATS))})", TableFile),
        (rf"{run}/run\.tar", RunFile),
        (rf"{run}/export", ExportFile),
        (r"/compare", Compare),
        (r"/assets/(serve\.css|serve\.js)", Asset),
    ]
    return [(pattern, handler, arguments) for pattern, handler in pages]


class Runs(Page):
    """The list of runs; with ``?part=…`` only its rows, with which a page updates its list."""

    async def get(self) -> None:
        """Respond with the list or its rows."""
        rows = await self.in_list_thread(self.context.runs.rows)
        template = "rows.html" if self.get_query_argument("part", None) else "runs.html"
        self.show(template, rows=rows, folder=str(self.context.runs.folder))


class OneRun(Page):
    """A run: its headline, its page and links."""

    async def get(self, name: str) -> None:
        """Respond with the page."""
        run = await self.in_thread(self.context.runs.run, name)
        summary = await self.in_thread(summary_of, run)
        is_imported = run.manifest.imported_from is not None
        mark = await self.in_thread(self.context.runs.mark, name)
        others = [
            r["run"] for r in await self.in_list_thread(self.context.runs.rows) if r["run"] != name
        ]
        self.show(
            "run.html",
            name=name,
            summary=summary,
            headline=await self.in_thread(_headline, run, summary),
            mark=mark,
            others=others,
            tables={t: len(run[t]) for t in TABLES} if is_imported else list(TABLES),
            example=_EXAMPLE,
            exports=[each for each in exporters().values() if each.media_type is not None],
        )


class RunPage(Page):
    """The page of a run, as `dask-strata report` writes it."""

    async def get(self, name: str) -> None:
        """Respond with the page; it contains its own content security policy."""
        page = await self.in_thread(self.context.runs.page, name, "page", make_page)
        self.set_header("Content-Security-Policy", "frame-ancestors 'self'")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        data = page.encode("utf-8", "replace")
        for start in range(0, len(data), _CHUNK):
            await self.send(data[start : start + _CHUNK])


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


class TaskStory(Page):
    """Everything about one task."""

    async def get(self, name: str) -> None:
        """Respond with the story."""
        key = self.get_query_argument("key", "")
        kind = self.get_query_argument("type", None) or None
        if not key:
            raise UsageError("No key was given.", hint="?key=… as `dask-strata tasks` shows it")

        def read_story() -> Any:
            return story(self.context.runs.run(name).task(key, kind))

        self.show("story.html", name=name, story=await self.in_thread(read_story))


class Sql(Page):
    """A form for one SQL query that reads, and its answer."""

    _answering: asyncio.Task[Any] | None = None

    async def get(self, name: str) -> None:
        """Respond with the form."""
        await self.in_list_thread(self.context.runs.path, name)
        self.show("sql.html", name=name, query=_EXAMPLE, columns=(), rows=(), note="", error=None)

    async def post(self, name: str) -> None:
        """Respond with the answer to the query, or its error."""
        query = self.get_body_argument("query", "")
        if len(query) > LONGEST:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The query is too long.")
            return
        folder, kept = await self.in_thread(self.context.runs.folder_of, name)
        values: dict[str, Any] = {"columns": (), "rows": (), "note": "", "error": None}
        self._answering = asyncio.ensure_future(self.context.sql.answer(folder, query))
        try:
            answer = await self._answering
        except asyncio.CancelledError:
            if self._answering.cancelled():
                return  # the browser has closed the connection
            raise
        except (QueryError, BusyError) as error:
            values["error"] = error
            self.respond_with(status_of(error))
        else:
            values["columns"], values["rows"] = answer["columns"], answer["rows"]
            values["note"] = answer["more"] or f"{len(answer['rows']):,} rows"
        finally:
            del kept
        make = partial(self.page_of, "sql.html", name=name, query=query, **values)
        page = await self.in_thread(make)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)

    def on_connection_close(self) -> None:
        """End the query, as nobody waits for its answer."""
        if self._answering is not None:
            self._answering.cancel()


class TableFile(Page):
    """Download of a table."""

    async def get(self, name: str, table: str, suffix: str) -> None:
        """Write the table to a temporary file, and send the file in pieces."""
        if table not in TABLES:
            raise HTTPError(HTTPStatus.NOT_FOUND)
        with tempfile.TemporaryDirectory(prefix="dask-strata-") as folder:
            output_format = _FORMATS[suffix]
            path = Path(folder) / f"{table}{suffix}"

            def write() -> None:
                write_rows(self.context.runs.run(name)[table].to_arrow(), output_format.name, path)

            await self.in_thread(write)
            self.set_header("Content-Type", output_format.media_type)
            self.set_header("Content-Disposition", f'attachment; filename="{path.name}"')
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    await self.send(piece)


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
                hint=f"dask-strata export RUN --to {to} -o FOLDER",
            )
        place = await self.in_list_thread(self.context.runs.path, name)
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


class Compare(Page):
    """Runs compared: two with each other, more as one group, or in groups by a fact."""

    async def get(self) -> None:
        """Respond with the comparison."""
        names = self.get_query_arguments("run")
        if len(names) < _LEAST_COMPARED:
            raise UsageError("Select two runs or more to compare.", hint="/compare?run=…&run=…")
        by = self.get_query_argument("by", "").strip() or None
        exclude = self.get_query_argument("exclude_spoiled", "") == "on"
        runs = [await self.in_thread(self.context.runs.run, name) for name in names]
        found = await self.in_thread(partial(compare, *runs, by=by, exclude_spoiled=exclude))
        body = await self.in_thread(comparison_part, found)
        self.show("compare.html", names=names, body=body, by=by or "", exclude=exclude)


class Asset(Page):
    """Style sheet and script of the pages."""

    def get(self, name: str) -> None:
        """Send the file."""
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        text = (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")
        self.finish(text + asset("comparison.css") if kind == "text/css" else text)
