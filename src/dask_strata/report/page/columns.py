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
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.integer[Any]]

#: Token in a key of Dask: 32 hexadecimal digits, stored as 16 bytes.
_TOKEN = re.compile("[0-9a-f]{32}")
_TOKEN_BYTES = 16

#: Fewest bytes of a token.
_SHORTEST = 3

#: Bytes above which the columns are compressed at zlib's usual level: the highest takes ten times
#: as long, for a few percent of the size.
_LARGE = 8 << 20

#: Texts that are searched for tokens at a time.
_BLOCK = 1 << 16

#: Placeholder of a token in a text, and separator of texts.
_MARK, _END = "\x01", "\x00"


def few_digits(values: Ints, digits: int, coarsest: int = 1 << 62) -> Ints:
    """Return integers of 0 or more rounded to binary digits: their lowest bytes compress well.

    Parameters
    ----------
    values : array of int
        The integers.
    digits : int
        Digits that are kept.
    coarsest : int, optional
        A power of two: multiples of it are kept in any case.

    Examples
    --------
    >>> few_digits(np.array([0, 2047, 1_000_001]), 11).tolist()
    [0, 2047, 999936]
    """
    known = np.maximum(values, 1).astype(np.float64)
    unit = np.exp2(np.maximum(np.floor(np.log2(known)) + 1 - digits, 0)).astype(np.int64)
    unit = np.minimum(unit, coarsest)
    rounded: Ints = (values + unit // 2) // unit * unit
    return rounded


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
        stored = values.astype(np.int64, copy=False)
        stored = np.diff(stored, prepend=0) if delta else stored
        # Zigzag: small numbers of either sign become small numbers.
        stored = ((stored << 1) ^ (stored >> 63)).astype("<u8", copy=False)
        width = max(1, (int(stored.max()).bit_length() + 7) // 8) if len(stored) else 1
        planes = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, 8)[:, :width].T
        self._add(
            name, np.ascontiguousarray(planes).tobytes(), n=len(values), width=width, delta=delta
        )

    def texts(self, name: str, values: Iterable[str], *, most: int | None = None) -> int:
        """Add a column of texts; their tokens are stored in a column of their own, each once.

        Parameters
        ----------
        name : str
            Name of the column.
        values : iterable of str
            The texts.
        most : int, optional
            Most bytes of all tokens: if they need more, only their beginnings are stored, of at
            least 3 bytes each.

        Returns
        -------
        int
            Bytes of each token that are stored.
        """
        rest = iter(values)
        parts: list[bytes] = []
        tokens: list[bytes] = []
        n = 0
        while block := list(islice(rest, _BLOCK)):
            text = _END.join(block)
            if _MARK in text or text.count(_END) >= len(block):
                text = _END.join(
                    value.replace(_MARK, "\ufffd").replace(_END, "\ufffd") for value in block
                )
            tokens.append(bytes.fromhex("".join(_TOKEN.findall(text))))
            parts.append(_TOKEN.sub(_MARK, text).encode("utf-8", "replace"))
            n += len(block)
        self._add(name, _END.encode().join(parts), n=n)
        return self._add_tokens(name, b"".join(tokens), most)

    def _add_tokens(self, name: str, tokens: bytes, most: int | None) -> int:
        n = len(tokens) // _TOKEN_BYTES
        column = pa.Array.from_buffers(
            pa.binary(_TOKEN_BYTES), n, [None, pa.py_buffer(tokens)]
        ).dictionary_encode()
        n = len(column.dictionary)
        each = column.dictionary.buffers()[1].to_pybytes()[: n * _TOKEN_BYTES] if n else b""
        size = _TOKEN_BYTES
        if most is not None and len(each) > most:
            size = max(_SHORTEST, most // n)
            begins = np.frombuffer(each, np.uint8).reshape(n, _TOKEN_BYTES)[:, :size]
            each = np.ascontiguousarray(begins).tobytes()
        self._add(f"{name}.tokens", each, n=n, size=size)
        self.ints(f"{name}.used", column.indices.to_numpy(), delta=True)
        return size

    def _add(self, name: str, data: bytes, **facts: Any) -> None:
        self._columns.append({"name": name, "bytes": len(data), **facts})
        self._bytes.append(data)

    def cost(self, name: str | None = None) -> int:
        """Return about how many characters of `text` the columns need, or one of them.

        Parameters
        ----------
        name : str, optional
            Name of the column.
        """
        deflated = (
            len(zlib.compress(data))
            for column, data in zip(self._columns, self._bytes, strict=True)
            if name in (None, column["name"])
        )
        return sum(deflated) * 4 // 3

    def drop(self, name: str) -> None:
        """Remove a column.

        Parameters
        ----------
        name : str
            Name of the column.
        """
        at = [column["name"] for column in self._columns].index(name)
        del self._columns[at], self._bytes[at]

    def deflated(self) -> bytes:
        """Return the header and the columns, deflated."""
        header = json.dumps(self._columns).encode()
        large = sum(map(len, self._bytes)) > _LARGE
        compressor = zlib.compressobj(6 if large else 9)
        parts = [compressor.compress(len(header).to_bytes(4, "little") + header)]
        parts += [compressor.compress(data) for data in self._bytes]
        return b"".join([*parts, compressor.flush()])

    def text(self) -> str:
        """Return the deflated container as base64."""
        return base64.b64encode(self.deflated()).decode("ascii")
