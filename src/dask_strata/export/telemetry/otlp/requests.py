"""Requests of bounded size, each with spans of one or more processes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.series.columns import Array
from dask_strata.export.json_text import text_bytes

#: Most spans of a request, and most bytes: collectors read lines of up to 1 MiB from files.
MOST_SPANS = 512
MOST_BYTES = 900_000


class Requests:
    """Spans in the order in which they are added, until a request is full."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._spans = 0
        self._size = 0

    def add(self, head: str, spans: pa.Array, first: int, last: int) -> Iterator[bytes]:
        """Add spans of a process; yield the requests that are full.

        Parameters
        ----------
        head : str
            The begin of the process's part of a request, see `Resources`.
        spans : pyarrow.Array
            Spans, each with a comma at its end.
        first, last : int
            Bounds of the spans that are added.
        """
        ends: Array = np.cumsum(pc.binary_length(spans).to_numpy(zero_copy_only=False))
        while first < last:
            before = int(ends[first - 1]) if first else 0
            room = before + MOST_BYTES - self._size - len(head)
            end = int(np.searchsorted(ends, room, side="right"))
            end = min(end, first + MOST_SPANS - self._spans, last)
            if end <= first and self._parts:
                yield self.flush()
                continue
            end = max(end, first + 1)  # a span that is larger than a request has one of its own
            part = b"".join([head.encode(), text_bytes(spans, first, end)[:-1], b"]}]}"])
            self._parts.append(part)
            self._spans += end - first
            self._size += len(part) + 1
            first = end

    def flush(self) -> bytes:
        """Return a request with all spans that are not in an earlier one; it is one line."""
        request = b'{"resourceSpans":[' + b",".join(self._parts) + b"]}\n"
        self._parts.clear()
        self._spans = self._size = 0
        return request
