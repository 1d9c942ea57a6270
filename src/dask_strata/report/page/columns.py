"""Columns of numbers and texts, small enough to be part of a page.

A container is a JSON header that names the columns, and their bytes, deflated together. Of
a column of integers the differences between neighbours are kept where these are smaller,
as planes: all lowest bytes, then all second ones, as many as there are. The page's script
has the other half (`codec.js`).
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: A key's token, as Dask makes it: 32 hexadecimal digits are 16 bytes.
_TOKEN = re.compile("[0-9a-f]{32}")

#: What stands for a token in a text, and what separates texts.
_MARK, _END = "\x01", "\x00"


class Container:
    """Columns that go into a page together."""

    def __init__(self) -> None:
        self._columns: list[dict[str, Any]] = []
        self._bytes: list[bytes] = []

    def ints(self, name: str, values: Ints, *, delta: bool = False) -> None:
        """Add integers; with `delta` what is kept is how each differs from the one before."""
        kept = np.diff(values, prepend=0) if delta else values
        # Zigzag: small numbers of either sign become small numbers.
        kept = ((kept << 1) ^ (kept >> 63)).astype("<u8")
        width = max(1, (int(kept.max()).bit_length() + 7) // 8) if len(kept) else 1
        planes = np.ascontiguousarray(kept).view(np.uint8).reshape(-1, 8)[:, :width].T
        self._add(
            name, np.ascontiguousarray(planes).tobytes(), n=len(values), width=width, delta=delta
        )

    def texts(self, name: str, values: Iterable[str]) -> None:
        """Add texts; their tokens are kept apart, each once."""
        tokens: dict[str, int] = {}
        used: list[int] = []

        def place(match: re.Match[str]) -> str:
            used.append(tokens.setdefault(match.group(), len(tokens)))
            return _MARK

        lines = [
            _TOKEN.sub(place, value.replace(_MARK, "\ufffd").replace(_END, "\ufffd"))
            for value in values
        ]
        text = _END.join(lines).encode("utf-8", "replace")
        self._add(name, text, n=len(lines))
        self._add(f"{name}.tokens", bytes.fromhex("".join(tokens)), n=len(tokens))
        self.ints(f"{name}.used", np.array(used, np.int64), delta=True)

    def _add(self, name: str, data: bytes, **facts: Any) -> None:
        self._columns.append({"name": name, "bytes": len(data), **facts})
        self._bytes.append(data)

    def deflated(self) -> bytes:
        """Return header and columns, deflated."""
        header = json.dumps(self._columns).encode()
        press = zlib.compressobj(9)
        parts = [press.compress(len(header).to_bytes(4, "little") + header)]
        parts += [press.compress(data) for data in self._bytes]
        return b"".join([*parts, press.flush()])

    def text(self) -> str:
        """Return it as base64."""
        return base64.b64encode(self.deflated()).decode("ascii")
