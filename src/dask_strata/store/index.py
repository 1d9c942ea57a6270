"""What a folder of Parquet says that it holds, read as what it is: a text from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.store.limits import INDEX_BYTES, TIME_NS
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.safe_files import RefusedError, is_name, read_inside
from dask_strata.store.segments import Segment, header_facts

#: File in a folder of Parquet that says what is there.
INDEX = "index.json"


@dataclass(frozen=True)
class Index:
    """What an index says.

    Attributes
    ----------
    tables : dict of str to int
        How many rows each table has.
    segments : list of Segment
        Which part of which segment is in the tables.
    additions : list of str
        Names of the additions that are in them.
    checksums : dict of str to int
        CRC-32 of the file of each table; empty, if an earlier version wrote it.
    """

    tables: dict[str, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    additions: list[str] = field(default_factory=list)
    checksums: dict[str, int] = field(default_factory=dict)


def read_index(run: Path, *home: str) -> Index:
    """Read the index of a folder of Parquet inside of a run.

    Raises
    ------
    OSError
        There is none, or it is no file of the run.
    ValueError
        It does not say what an index says, or names what is no part of the run.
    """
    try:
        facts = json.loads(read_inside(run, *home, INDEX, limit=INDEX_BYTES))
        return Index(
            {_name(name): _count(n) for name, n in facts["tables"].items()},
            [_segment(run, about) for about in facts["segments"]],
            [_name(name) for name in facts.get("additions") or ()],
            {_name(name): _count(n) for name, n in (facts.get("checksums") or {}).items()},
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is no index of Parquet") from error


def index_bytes(
    tables: dict[str, int],
    segments: Sequence[Segment] = (),
    additions: Sequence[str] = (),
    checksums: Mapping[str, int] | None = None,
) -> bytes:
    """Return the index that says this.

    Raises
    ------
    RefusedError
        It is larger than what is read again.
    """
    about: list[dict[str, Any]] = []
    for segment in segments:
        facts = asdict(segment)
        del facts["path"], facts["too_large"]
        about.append(facts)
    found = {
        "tables": tables,
        "segments": about,
        "additions": list(additions),
        "checksums": dict(checksums or {}),
    }
    data = (json.dumps(found, indent=1) + "\n").encode()
    if len(data) > INDEX_BYTES:
        raise RefusedError(f"{INDEX} would have more than {INDEX_BYTES:,} bytes")
    return data


def _segment(run: Path, about: dict[str, Any]) -> Segment:
    process = _name(about["process"])
    following = about.get("next_seq")
    return Segment(
        process,
        run / SEGMENTS / f"{process}{SUFFIX}",
        _count(about["size"]),
        _seconds(about["modified"]),
        header=header_facts(about.get("header")),
        rows=_count(about.get("rows", 0)),
        damages=[_text(damage) for damage in about.get("damages", ())],
        lost_rows=_count(about.get("lost_rows", 0)),
        end_reason=_text_or_none(about.get("end_reason")),
        host=_text_or_none(about.get("host")),
        next_seq=None if following is None else _count(following),
    )


def _name(value: object) -> str:
    if not is_name(value):
        raise ValueError(f"it names {str(value)[:80]!r}, which is no name of a part of a run")
    return str(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < TIME_NS:
        raise ValueError("a number in it is none")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > TIME_NS:
        raise ValueError("a time in it is none")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
