"""The spans that users name with Dask's `span`, and the span of each task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.text import clip, safe_repr
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch

#: Name of the spans in which Dask puts tasks that belong to none.
_DEFAULT = ("default",)

#: Between the tags in a name, and how a tag is written that contains it.
_BETWEEN, _WITHIN = " / ", " \\/ "

#: Longest tag and id, in characters.
_MOST = 1000


class Spans:
    """The named spans of a scheduler; call its methods on the recorder's thread.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._extension = scheduler.extensions.get("spans")
        self._known: dict[str, str | None] = {}
        self._rows: list[dict[str, Any]] = []

    def of(self, groups: Sequence[Any]) -> list[str | None] | Sparse:
        """Return the id of the named span of each task group.

        Parameters
        ----------
        groups : sequence of distributed.scheduler.TaskGroup
            The groups, of which Dask has already set the span.
        """
        # Without named spans tasks cost nothing.
        by_name = getattr(self._extension, "spans_search_by_name", None)
        if not by_name or (len(by_name) == 1 and _DEFAULT in by_name):
            return Sparse()
        known = self._known
        ids = [group.span_id for group in groups]
        for span_id in set(ids) - known.keys():
            known[span_id] = self._id(self._extension.spans.get(span_id))
        return [known[span_id] for span_id in ids]

    def _id(self, span: Any) -> str | None:
        """Return the id of a span, after adding its row and those of the spans around it."""
        if span is None or span.name == _DEFAULT:
            return None
        parent = span.parent
        around = None
        if parent is not None:
            if parent.id not in self._known:
                self._known[parent.id] = self._id(parent)
            around = self._known[parent.id]
        tags = [redact_text(clip(_text(tag), _MOST)) for tag in span.name]
        span_id = redact_text(clip(_text(span.id), _MOST))
        row = {
            "time": now_ns(),
            "span": span_id,
            "name": _BETWEEN.join(tag.replace(_BETWEEN, _WITHIN) for tag in tags),
            "tags": json.dumps(tags, ensure_ascii=False),
            "parent": around,
            "enqueued": int(span.enqueued * 1e9),
        }
        self._rows.append(row)
        return span_id

    def rows(self) -> Iterator[Batch]:
        """Yield the spans that `of` found since the last call."""
        if self._rows:
            rows, self._rows = self._rows, []
            yield Batch.of_rows("spans", rows)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else safe_repr(value)
