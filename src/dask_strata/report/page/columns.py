"""Columns of numbers and texts, compressed to be part of a page.

A container is a JSON header with the names of the columns, followed by their bytes, deflated
together. Integers are stored as byte planes: the lowest bytes of all values, then the second
bytes, and so on. Columns whose neighbours differ little store the differences. The page's
script (`codec.js`) decodes them.
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

#: Token in a key of Dask: 32 hexadecimal digits, stored as 16 bytes.
_TOKEN = re.compile("[0-9a-f]{32}")

#: Placeholder of a token in a text, and separator of texts.
_MARK, _END = "\x01", "\x00"


class Container:
    """Columns that are compressed together.

    >>> container = Container()
    >>> container.ints("n", np.array([1, 2, 3]), delta=True)
    >>> list(zlib.decompress(container.deflated())[-3:])
    [2, 2, 2]
    """

    def __init__(self) -> None:
        self._columns: list[dict[str, Any]] = []
        self._bytes: list[bytes] = []

    def ints(self, name: str, values: Ints, *, delta: bool = False) -> None:
        """Add a column of integers.

        Parameters
        ----------
        name : str
            Name of the column.
        values : array of int
            The values.
        delta : bool, optional
            Store the differences between neighbours.
        """
        stored = np.diff(values, prepend=0) if delta else values
        # Zigzag: small numbers of either sign become small numbers.
        stored = ((stored << 1) ^ (stored >> 63)).astype("<u8")
        width = max(1, (int(stored.max()).bit_length() + 7) // 8) if len(stored) else 1
        planes = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, 8)[:, :width].T
        self._add(
            name, np.ascontiguousarray(planes).tobytes(), n=len(values), width=width, delta=delta
        )

    def texts(self, name: str, values: Iterable[str]) -> None:
        """Add a column of texts; their tokens are stored in a column of their own, each once.

        Parameters
        ----------
        name : str
            Name of the column.
        values : iterable of str
            The texts.
        """
        tokens: dict[str, int] = {}
        used: list[int] = []

        def replace(match: re.Match[str]) -> str:
            used.append(tokens.setdefault(match.group(), len(tokens)))
            return _MARK

        lines = [
            _TOKEN.sub(replace, value.replace(_MARK, "\ufffd").replace(_END, "\ufffd"))
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
        """Return the header and the columns, deflated."""
        header = json.dumps(self._columns).encode()
        compressor = zlib.compressobj(9)
        parts = [compressor.compress(len(header).to_bytes(4, "little") + header)]
        parts += [compressor.compress(data) for data in self._bytes]
        return b"".join([*parts, compressor.flush()])

    def text(self) -> str:
        """Return the deflated container as base64."""
        return base64.b64encode(self.deflated()).decode("ascii")
