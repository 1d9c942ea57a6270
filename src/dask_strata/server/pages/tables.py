"""The tables of a run: pages with filters, facets and links, and downloads."""

from __future__ import annotations

import tempfile
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tornado.web import HTTPError

from dask_strata.errors import QueryError
from dask_strata.report.rows import write_rows
from dask_strata.schema import TABLES
from dask_strata.server.hints import browser_hint
from dask_strata.server.page import Page, status_of
from dask_strata.server.pages.asking import FORMATS, Asking, link, run_path
from dask_strata.server.pages.cells import cells_of
from dask_strata.server.pages.queries import OPERATORS, ROWS, View, view_of
from dask_strata.server.sql import BusyError

_CHUNK = 1 << 20


class Tables(Page):
    """All tables of a run."""

    async def get(self, name: str) -> None:
        """Respond with their names, contents and downloads."""
        await self.in_short_thread(self.context.runs.path, name)
        cells: dict[str, list[Any]] = {}
        for table in TABLES.values():
            cells.setdefault(table.layer, []).append(table)
        self.show("tables.html", name=name, layers=cells, formats=list(FORMATS))


class TableRows(Asking):
    """A page of a table."""

    async def get(self, name: str, table: str) -> None:
        """Respond with the rows that the filters select."""
        if table not in TABLES:
            raise HTTPError(HTTPStatus.NOT_FOUND)
        await self.in_short_thread(self.context.runs.path, name)
        view = view_of(TABLES[table], self.get_query_arguments)
        values: dict[str, Any] = {"rows": (), "count": None, "facets": {}, "error": None}
        if self.is_from_elsewhere() and self.request.query:
            self.redirect(f"{run_path(name)}/tables/{table}")
            return
        queries = [view.rows, view.count, *([view.facets] if view.facets else [])]
        columns = view.columns
        try:
            answers = await self.ask(name, queries)
        except (QueryError, BusyError) as error:
            self.respond_with(status_of(error))
            values["error"] = error.message, browser_hint(error)
        else:
            if answers is None:
                return
            columns = answers[0]["columns"]
            values |= {"rows": answers[0]["rows"], "count": answers[1]["rows"][0][0]}
            values["facets"] = _facets(view, answers[2]["rows"] if view.facets else ())
        make = partial(
            self.page_of,
            "table.html",
            name=name,
            view=view,
            columns=columns,
            cells=cells_of(name, columns),
            per_page=ROWS,
            operators=OPERATORS,
            formats=list(FORMATS),
            sql=link("../sql", q=view.query),
            result={suffix: link(f"../sql{suffix}", q=view.query) for suffix in FORMATS},
            **values,
        )
        page = await self.in_thread(make)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)


def _facets(view: View, rows: Any) -> dict[str, list[tuple[str | None, int, str]]]:
    """Return the values of facets, with their numbers and addresses; of facets with several."""
    found: dict[str, list[tuple[str | None, int, str]]] = {}
    for column, value, n in rows:
        found.setdefault(column, []).append((value, n, view.narrowed(column, value)))
    return {column: values for column, values in found.items() if len(values) > 1}


class TableFile(Page):
    """Download of a table."""

    async def get(self, name: str, table: str, suffix: str) -> None:
        """Write the table to a temporary file, and send the file in pieces."""
        if table not in TABLES:
            raise HTTPError(HTTPStatus.NOT_FOUND)
        with tempfile.TemporaryDirectory(prefix="dask-strata-") as folder:
            output_format = FORMATS[suffix]
            path = Path(folder) / f"{table}{suffix}"

            def write() -> None:
                write_rows(self.context.runs.run(name)[table].to_arrow(), output_format.name, path)

            await self.in_thread(write)
            self.set_header("Content-Type", output_format.media_type)
            self.set_header("Content-Disposition", f'attachment; filename="{path.name}"')
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    await self.send(piece)
