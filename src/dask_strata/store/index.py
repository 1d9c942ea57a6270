"""The index of a Parquet folder: its tables, segments and checksums. Untrusted when read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.store.limits import INDEX_BYTES, TIME_NS
from dask_strata.store.manifest import INDEX, SEGMENTS, SUFFIX
from dask_strata.store.safe_files import RefusedError, is_name, read_inside
from dask_strata.store.segments.read import Segment, header_facts


@dataclass(frozen=True)
class Derived:
    """A derived table in Parquet.

    Attributes
    ----------
    rows : int
        Number of its rows.
    version : str
        Version of the definition that computed it.
    """

    rows: int
    version: str


@dataclass(frozen=True)
class Index:
    """Contents of an index.

    Attributes
    ----------
    tables : dict of str to int
        Number of rows of each table.
    segments : list of Segment
        State of each segment at compaction: the part that the tables contain.
    additions : list of str
        Names of the additions that the tables contain.
    checksums : dict of str to tuple of int
        CRC-32 of each file of each table; empty in an index of an earlier version.
    run_id : str or None
        Id of the run; None in an index of an earlier version.
    derived : dict of str to Derived
        The derived tables.
    keys_per_bucket : int
        Number of keys whose rows are in one file; 0 if the tables have texts of keys.
    """

    tables: dict[str, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    additions: list[str] = field(default_factory=list)
    checksums: dict[str, tuple[int, ...]] = field(default_factory=dict)
    run_id: str | None = None
    derived: dict[str, Derived] = field(default_factory=dict)
    keys_per_bucket: int = 0

    def foreign(self, run_id: str) -> str | None:
        """Return why the index does not belong to a run; None if it does.

        Parameters
        ----------
        run_id : str
            Id of the run, by its manifest.
        """
        runs = [self.run_id, *(segment.header.get("run") for segment in self.segments)]
        other = next((run for run in runs if run not in {None, run_id}), None)
        return None if other is None else f"belongs to another run, {other}"


def read_index(run: Path, *home: str) -> Index:
    """Read the index of a Parquet folder inside of a run.

    Parameters
    ----------
    run : Path
        The run's folder.
    *home : str
        Names of the folders from there to the Parquet folder.

    Raises
    ------
    OSError
        The index does not exist, or is not a plain file.
    ValueError
        It is not valid JSON, lacks a field, or contains a name that could lead out of the run.
    """
    try:
        facts = json.loads(read_inside(run, *home, INDEX, limit=INDEX_BYTES))
        return Index(
            {_name(name): _count(n) for name, n in facts["tables"].items()},
            [_segment(run, segment) for segment in facts["segments"]],
            [_name(name) for name in facts.get("additions") or ()],
            {_name(name): _counts(n) for name, n in (facts.get("checksums") or {}).items()},
            None if facts.get("run") is None else _name(facts["run"]),
            {
                _name(name): Derived(_count(each["rows"]), _text(each["version"]))
                for name, each in (facts.get("derived") or {}).items()
            },
            _count(facts.get("keys_per_bucket") or 0),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is not an index of Parquet") from error


def index_bytes(index: Index) -> bytes:
    """Return an index as JSON.

    Raises
    ------
    RefusedError
        The index exceeds the limit of a reader.

    Examples
    --------
    >>> json.loads(index_bytes(Index({"job": 3}, run_id="0a1b2c3d")))["tables"]
    {'job': 3}
    """
    states: list[dict[str, Any]] = []
    for segment in index.segments:
        facts = asdict(segment)
        del facts["path"], facts["too_large"], facts["foreign"]
        states.append(facts)
    found = {
        "run": index.run_id,
        "tables": index.tables,
        "segments": states,
        "additions": index.additions,
        "checksums": index.checksums,
        "derived": {name: asdict(table) for name, table in index.derived.items()},
        "keys_per_bucket": index.keys_per_bucket,
    }
    data = (json.dumps(found, indent=1) + "\n").encode()
    if len(data) > INDEX_BYTES:
        raise RefusedError(f"{INDEX} would have more than {INDEX_BYTES:,} bytes")
    return data


def _segment(run: Path, facts: dict[str, Any]) -> Segment:
    process = _name(facts["process"])
    next_seq, complete = facts.get("next_seq"), facts.get("complete")
    return Segment(
        process,
        run / SEGMENTS / f"{process}{SUFFIX}",
        _count(facts["size"]),
        _seconds(facts["modified"]),
        header=header_facts(facts.get("header")),
        rows=_count(facts.get("rows", 0)),
        damages=[_text(damage) for damage in facts.get("damages", ())],
        lost_rows=_count(facts.get("lost_rows", 0)),
        end_reason=_text_or_none(facts.get("end_reason")),
        host=_text_or_none(facts.get("host")),
        next_seq=None if next_seq is None else _count(next_seq),
        complete=None if complete is None else _count(complete),
        unnumbered=[
            (_name(table), _count(seq), _count(n)) for table, seq, n in facts.get("unnumbered", ())
        ],
    )


def _name(value: object) -> str:
    if not is_name(value):
        raise ValueError(f"it contains {str(value)[:80]!r}, which is not a valid name")
    return str(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < TIME_NS:
        raise ValueError("it contains an invalid number")
    return value


def _counts(value: object) -> tuple[int, ...]:
    # Earlier versions wrote one number, as each table had one file.
    return tuple(_count(n) for n in value) if isinstance(value, list) else (_count(value),)


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > TIME_NS:
        raise ValueError("it contains an invalid time")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
