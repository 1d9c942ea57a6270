"""Several parts of a run's files in one object of a store.

Object stores cannot append. While a run is recorded, each upload therefore makes one new object
with all new bytes of all files: the number of objects depends on the time, not on the workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dask_strata.store.copies.growth import Part
from dask_strata.store.limits import PAYLOAD_BYTES

#: Folder of the bundles in a run's place, and the digits of their numbers.
BUNDLES = "parts"
_DIGITS = 20

#: Bytes of new rows after which a bundle is full, and the largest bundle that is read: one more
#: frame, and the list of the parts.
FULL_BYTES = 8 << 20
BUNDLE_BYTES = FULL_BYTES + PAYLOAD_BYTES + (8 << 20)

_MAGIC = b"dask-strata parts 1\n"
_LENGTH_BYTES = 4


def bundle_name(number: int) -> str:
    """Return the name of a bundle, in the order of their numbers.

    >>> bundle_name(7)
    'parts/00000000000000000007'
    """
    return f"{BUNDLES}/{number:0{_DIGITS}}"


def bundle_number(name: str) -> int | None:
    """Return the number of a bundle; None if the name is of another object.

    >>> bundle_number("parts/00000000000000000007"), bundle_number("run.json")
    (7, None)
    """
    folder, _, digits = name.partition("/")
    valid = folder == BUNDLES and len(digits) == _DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if valid else None


def encode_bundle(parts: Sequence[Part]) -> bytes:
    """Return the bytes of a bundle."""
    index = [[p.name, p.offset, len(p.data), p.size, p.version] for p in parts]
    head = json.dumps(index, separators=(",", ":")).encode()
    length = len(head).to_bytes(_LENGTH_BYTES, "big")
    return b"".join([_MAGIC, length, head, *(p.data for p in parts)])


def decode_bundle(data: bytes) -> list[Part]:
    """Return the parts in a bundle, whoever made it.

    Raises
    ------
    ValueError
        The bytes are not a bundle.

    Examples
    --------
    >>> decode_bundle(encode_bundle([Part("run.json", 0, b"{}", 2, 1)]))
    [Part(name='run.json', offset=0, data=b'{}', size=2, version=1)]
    """
    start = len(_MAGIC) + _LENGTH_BYTES
    if not data.startswith(_MAGIC) or len(data) < start:
        raise ValueError("not a bundle of parts")
    body = start + int.from_bytes(data[len(_MAGIC) : start], "big")
    parts = []
    try:
        for name, offset, length, size, version in json.loads(data[start:body]):
            if type(length) is not int or not 0 <= length <= len(data) - body:
                raise ValueError("a part is beyond the end of its bundle")
            parts.append(Part(name, offset, data[body : body + length], size, version))
            body += length
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a bundle of parts: {error}") from None
    return parts
