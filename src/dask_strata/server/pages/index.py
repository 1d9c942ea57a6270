"""The list of runs, and the trend of a script."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from dask_strata.errors import NotARunError, UsageError
from dask_strata.server.page import Page
from dask_strata.server.pages.listing import SORTS, TRENDS, Selection, trend

#: Size of the drawing of a trend, and its margins at the left, right, top and bottom.
_WIDTH, _HEIGHT = 900, 240
_MARGINS = (90, 20, 16, 28)


class Runs(Page):
    """The list of runs; with ``?part=list`` only the list, with which a page updates itself."""

    async def get(self) -> None:
        """Respond with the list; with nothing, if the page has it already."""
        rows = await self.in_list_thread(self.context.runs.rows)
        selection = Selection.of(self.get_query_arguments)
        mark = sha256(json.dumps(rows, default=str).encode()).hexdigest()[:16]
        is_part = bool(self.get_query_argument("part", None))
        if is_part and self.get_query_argument("mark", "") == mark:
            self.set_status(HTTPStatus.NO_CONTENT)
            self.finish()
            return
        make = partial(
            self.page_of,
            "list.html" if is_part else "runs.html",
            rows=selection.rows(rows),
            total=len(rows),
            pending=sum(1 for row in rows if row.get("pending")),
            selection=selection,
            facets=selection.facets(rows),
            sorts=SORTS,
            folder=str(self.context.runs.folder),
            ticked=set(self.get_query_arguments("select")),
            mark=mark,
        )
        page = await self.in_short_thread(make)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)


class Trend(Page):
    """A value of all runs of one name over time."""

    async def get(self) -> None:
        """Respond with the drawing and the table."""
        name = self.get_query_argument("name", "")
        if not name:
            raise UsageError("No name was given.", hint="The names in the list of runs lead here.")
        column = self.get_query_argument("value", "duration_seconds")
        column = column if column in TRENDS else "duration_seconds"
        rows = await self.in_list_thread(self.context.runs.rows)
        points = trend([row for row in rows if row.get("name") == name], column)
        if not points:
            raise NotARunError(
                f"No run has the name {name[:200]!r}.", hint="The list of runs has all names."
            )
        left, right, top, bottom = _MARGINS
        drawn: list[dict[str, Any]] = [
            {
                "x": round(left + point.x * (_WIDTH - left - right), 1),
                "y": round(_HEIGHT - bottom - point.y * (_HEIGHT - top - bottom), 1),
                "point": point,
            }
            for point in points
            if point.value is not None
        ]
        self.show(
            "trend.html",
            name=name,
            column=column,
            trends=TRENDS,
            points=points[::-1],
            drawn=drawn,
            largest=max((point.value or 0 for point in points), default=0),
            box=(_WIDTH, _HEIGHT, *_MARGINS),
        )
