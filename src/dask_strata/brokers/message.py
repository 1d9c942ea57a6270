"""Messages of a stream: rows, the manifest of a run, and its end.

A message is JSON or Arrow IPC; the first bytes distinguish them. `encode` makes messages of rows,
`decode` parses them. A message may come from anyone: `decode` checks types, ranges and sizes, and
raises `MessageError` for everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from dask_strata.brokers.address import Form
from dask_strata.brokers.arrow_rows import complete_types, parse_stream, stream_bytes
from dask_strata.brokers.json_rows import check_row, column_kinds, json_text, json_values
from dask_strata.brokers.rows import complete_rows
from dask_strata.errors import MessageError
from dask_strata.schema import RECORDED
from dask_strata.store.manifest import Manifest
from dask_strata.store.safe_files import is_name

#: Version of the messages: the value of ``strata``.
MESSAGE_VERSION = 1

#: Bytes of one message, and lists and mappings in it: each may be two bytes there but takes more
#: in memory.
MESSAGE_BYTES = 32 << 20
MESSAGE_LISTS = 1 << 20

#: Rows and bytes of one Arrow message: a message of more rows is divided.
ARROW_ROWS = 4096
ARROW_BYTES = 512 << 10

#: Largest number of a row.
_SEQ = 1 << 62

Kind = Literal["row", "run", "end"]

_ARROW_START = b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes
    ----------
    data : bytes
        The message as sent.
    run : str
        Id of the run.
    kind : str
        ``row``; ``run`` with the contents of `run.json`, the first message of a run; or ``end``,
        the last one, with the number of rows by process and table.
    table, process : str or None
        Table and process of the rows; None in the other kinds.
    first, last : int or None
        Numbers of the first and last row: a process numbers the rows of all its tables.
    content : dict or pyarrow.RecordBatch
        Columns of one row, with times in nanoseconds; or a batch of rows with the column ``seq``;
        or the facts of the other kinds.
    cut : tuple of str
        Columns that are null here because the row was too large for a message.
    """

    data: bytes
    run: str
    kind: Kind
    table: str | None = None
    process: str | None = None
    first: int | None = None
    last: int | None = None
    content: Any = None
    cut: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows in this message."""
        if self.kind != "row":
            return 0
        return len(self.content) if isinstance(self.content, pa.RecordBatch) else 1


@dataclass(frozen=True)
class Unreadable:
    """Bytes of a stream that are not a message, and the reason.

    Attributes
    ----------
    data : bytes
        The bytes, or their beginning if they are too large.
    place : str
        Their position in the stream, for the user.
    reason : str
        One sentence.
    """

    data: bytes
    place: str
    reason: str


@dataclass(frozen=True)
class Gap:
    """Messages that the broker had and no longer has.

    Attributes
    ----------
    place : str
        Their position in the stream, for the user.
    messages : int or None
        Their number; None if it is unknown.
    """

    place: str
    messages: int | None


def encode(  # noqa: PLR0913  the origin of the rows has three parts
    run: str,
    table: str,
    process: str,
    rows: pa.RecordBatch,
    *,
    first: int | None = None,
    form: Form = "json",
) -> list[Message]:
    """Return the messages of some rows of one table and one process.

    Parameters
    ----------
    run, table, process : str
        Their run, table and process.
    rows : pyarrow.RecordBatch
        The rows, with columns as `dask_strata.store.arrow.arrow_schema` defines them; missing
        columns are null.
    first : int, optional
        Number of the first row, if the numbers of the rows are consecutive; by default the column
        ``seq`` has them.
    form : str, optional
        ``json`` for a message a row, ``arrow`` for batches.

    Examples
    --------
    >>> rows = pa.record_batch({"name": ["queue"], "seq": [7]})
    >>> message = encode("0a1b2c3d", "job", "scheduler-1", rows)[0]
    >>> message.data.decode()  # doctest: +ELLIPSIS
    '{"strata":1,"run":"0a1b2c3d","kind":"row","table":"job","process":"scheduler-1","seq":7,...}'
    >>> decode(message.data) == message
    True
    """
    seqs = rows["seq"] if first is None else pa.array(range(first, first + len(rows)), pa.int64())
    names = [n for n in rows.schema.names if n in column_kinds(RECORDED[table])]
    rows = rows.select(names)
    if form == "arrow":
        return list(_arrow_messages(run, table, process, rows, seqs))
    head = _head(run, "row", table, process)
    return [
        _json_message(head, run, table, process, seq, row)
        for seq, row in zip(seqs.to_pylist(), json_values(RECORDED[table], rows), strict=True)
    ]


def encode_facts(run: str, kind: Literal["run", "end"], facts: Mapping[str, Any]) -> Message:
    """Return the first or last message of a run.

    Parameters
    ----------
    run : str
        The run.
    kind : str
        ``run`` or ``end``.
    facts : mapping
        For ``run`` the contents of `run.json`. For ``end`` the ``state`` of the run and ``rows``,
        the number of rows by process and table.

    Examples
    --------
    >>> end = encode_facts("0a1b2c3d", "end", {"state": "complete", "rows": {}})
    >>> decode(end.data).content
    {'state': 'complete', 'rows': {}}
    """
    content = json.loads(json_text(dict(facts)))
    data = f'{_head(run, kind, None, None)}null,"row":{json_text(content)}}}'.encode()
    return Message(data, run, kind, content=content)


def decode(data: bytes) -> Message:
    """Parse a message.

    Raises
    ------
    MessageError
        It is not a message of dask-strata.

    Examples
    --------
    >>> try:
    ...     decode(b"[1, 2]")
    ... except MessageError as error:
    ...     print(error)
    the message is not a JSON object
    """
    if len(data) > MESSAGE_BYTES:
        raise MessageError(f"the message has {len(data):,} bytes; the limit is {MESSAGE_BYTES:,}")
    if data[:4] != _ARROW_START:
        return _decode_json(data)
    try:
        return _decode_arrow(data)
    except (pa.ArrowException, ValueError, TypeError) as error:  # a name that is not UTF-8
        raise MessageError(f"the message is no stream of Arrow: {str(error)[:200]}") from None


def to_table(table: str, messages: Sequence[Message]) -> pa.Table:
    """Return the rows of messages of one table as Arrow, with all columns of the schema.

    Parameters
    ----------
    table : str
        The table.
    messages : sequence of Message
        Its messages of kind ``row``, of any processes.
    """
    return complete_rows(RECORDED[table], [(m.process or "", m.first, m.content) for m in messages])


def _head(run: str, kind: str, table: str | None, process: str | None) -> str:
    """Return the beginning of a message up to its ``seq``; `decode` accepts any order of fields."""
    fields = {"strata": MESSAGE_VERSION, "run": run, "kind": kind}
    head = json_text({**fields, "table": table, "process": process})
    return f'{head[:-1]},"seq":'


def _json_message(  # noqa: PLR0913, PLR0917  as `encode`
    head: str, run: str, table: str, process: str, seq: int, row: dict[str, Any]
) -> Message:
    data = f'{head}{seq},"row":{json_text(row)}}}'.encode()
    cut: tuple[str, ...] = ()
    if len(data) > MESSAGE_BYTES >> 1 and not _fits(data):
        cut = tuple(n for n, v in row.items() if isinstance(v, (str, list)) and len(v) > 4096)  # noqa: PLR2004  names and keys are shorter
        row = {name: value for name, value in row.items() if name not in cut}
        data = f'{head}{seq},"cut":{json_text(cut)},"row":{json_text(row)}}}'.encode()
    return Message(data, run, "row", table, process, seq, seq, row, cut)


def _fits(data: bytes) -> bool:
    return len(data) <= MESSAGE_BYTES and data.count(b"[") + data.count(b"{") <= MESSAGE_LISTS


def _arrow_messages(
    run: str, table: str, process: str, rows: pa.RecordBatch, seqs: pa.Array
) -> Iterator[Message]:
    """Yield messages; divide rows that make a large one."""
    metadata = {"strata": str(MESSAGE_VERSION), "run": run, "table": table, "process": process}
    pending = [(rows, seqs)] if len(rows) else []
    while pending:
        rows, seqs = pending.pop()
        half = len(rows) // 2
        if len(rows) <= ARROW_ROWS:
            batch, data = stream_bytes(RECORDED[table], rows, seqs, metadata)
            if len(data) <= (ARROW_BYTES if half else MESSAGE_BYTES):
                numbers = (seqs[0].as_py(), seqs[-1].as_py())
                yield Message(data, run, "row", table, process, *numbers, batch)
                continue
        if not half:  # one row that is too large: JSON lists the columns that were cut
            (row,) = json_values(RECORDED[table], rows)
            head = _head(run, "row", table, process)
            yield _json_message(head, run, table, process, seqs[0].as_py(), row)
            continue
        pending += [(rows[half:], seqs[half:]), (rows[:half], seqs[:half])]


def _decode_json(data: bytes) -> Message:
    if not _fits(data):
        raise MessageError("the message has too many lists")
    try:
        facts = _decoder.decode(data.decode())
    except RecursionError:
        raise MessageError("the message is nested too deeply") from None
    except ValueError as error:
        raise MessageError(f"the message is not JSON: {str(error)[:200]}") from None
    if not isinstance(facts, dict):
        raise MessageError("the message is not a JSON object")
    run, kind, content = _identity(facts), facts.get("kind"), facts.get("row")
    if not isinstance(content, dict):
        raise MessageError("the message has no row")
    if kind in {"run", "end"}:
        _check_facts(run, kind, content)
        return Message(data, run, kind, content=content)
    if kind != "row":
        raise MessageError("the message is of an unknown kind")
    table, process = _origin(facts.get("table"), facts.get("process"))
    seq = facts.get("seq")
    if type(seq) is not int or not 0 <= seq < _SEQ:
        raise MessageError("seq is not the number of a row")
    cut = facts.get("cut", [])
    kinds = column_kinds(RECORDED[table])
    if not isinstance(cut, list) or not all(isinstance(c, str) and c in kinds for c in cut):
        raise MessageError("cut does not list columns")
    row = check_row(RECORDED[table], content)
    return Message(data, run, "row", table, process, seq, seq, row, tuple(cut))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a value of JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def _identity(facts: Mapping[str, Any]) -> str:
    version, run = facts.get("strata"), facts.get("run")
    if type(version) is not int or version < 1:
        raise MessageError("the message is not one of dask-strata")
    if version > MESSAGE_VERSION:
        raise MessageError(
            f"the message has version {version}; this version of dask-strata reads "
            f"{MESSAGE_VERSION}",
            hint="Upgrade: pip install -U dask-strata",
        )
    if not is_name(run):
        raise MessageError("the message has no id of a run")
    return str(run)


def _origin(table: object, process: object) -> tuple[str, str]:
    if not isinstance(table, str) or table not in RECORDED:
        raise MessageError("the table is not one that dask-strata records")
    if not is_name(process):
        raise MessageError("the process has no valid id")
    return table, str(process)


def _check_facts(run: str, kind: str, facts: dict[str, Any]) -> None:
    """Check the content of a first or last message."""
    if kind == "run":
        try:
            manifest = Manifest.from_json(facts)
            manifest.validate()
        except (TypeError, ValueError, OverflowError):
            raise MessageError("the content of run.json is not valid") from None
        if manifest.run_id != run:
            raise MessageError("the content of run.json is that of another run")
        return
    rows = facts.get("rows")
    if not isinstance(facts.get("state"), str) or not isinstance(rows, dict):
        raise MessageError("the last message has no state, or no numbers of rows")
    counts = [n for tables in rows.values() if isinstance(tables, dict) for n in tables.values()]
    if (
        not all(isinstance(tables, dict) for tables in rows.values())
        or not all(type(n) is int and 0 <= n < _SEQ for n in counts)
        or sum(counts) >= _SEQ
    ):
        raise MessageError("the numbers of rows in the last message are not valid")


def _decode_arrow(data: bytes) -> Message:
    batch, metadata = parse_stream(data)
    try:
        facts = {key.decode(): value.decode() for key, value in metadata.items()}
        facts_with_version = {**facts, "strata": int(facts.get("strata", "0"))}
    except ValueError:
        raise MessageError("the message is not one of dask-strata") from None
    run = _identity(facts_with_version)
    table, process = _origin(facts.get("table"), facts.get("process"))
    batch = complete_types(RECORDED[table], batch)
    seqs = batch["seq"].to_pylist()
    if not seqs or None in seqs or seqs[0] < 0 or seqs[-1] >= _SEQ:
        raise MessageError("seq does not have the number of each row")
    if any(later <= earlier for earlier, later in pairwise(seqs)):
        raise MessageError("seq does not increase from row to row")
    return Message(data, run, "row", table, process, seqs[0], seqs[-1], batch)
