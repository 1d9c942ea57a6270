"""Convert rows of the coupler's files to rows of a run's tables."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.importers.mofka.columns import TRANSFER_ENDS
from dask_strata.importers.mofka.literals import ONE_KEY, sizes

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("ns", "UTC")

#: An interval and a transfer of one worker are the same if they begin within this many nanoseconds.
_SAME_START_NS = 10_000


class IncomingTransfers:
    """Start and peer of the incoming transfers of each worker."""

    def __init__(self) -> None:
        self._starts: dict[str, array[int]] = {}
        self._peers: dict[str, list[str | None]] = {}
        self._sorted = False

    def add(self, worker: str, start: int, peer: str | None) -> None:
        """Add a transfer.

        Parameters
        ----------
        worker : str
            Address of the receiving worker.
        start : int
            Nanoseconds since the epoch.
        peer : str or None
            Address of the sender.
        """
        self._starts.setdefault(worker, array("q")).append(start)
        self._peers.setdefault(worker, []).append(peer)
        self._sorted = False

    def source(self, worker: str | None, start: int) -> tuple[bool, str | None]:
        """Return whether an incoming transfer of a worker began at a time, and its sender.

        >>> incoming = IncomingTransfers()
        >>> incoming.add("tcp://a:1", 1_000_000, "tcp://b:1")
        >>> incoming.source("tcp://a:1", 1_000_400), incoming.source("tcp://a:1", 2_000_000)
        ((True, 'tcp://b:1'), (False, None))
        """
        if not self._sorted:
            self._sort()
        starts = self._starts.get(worker or "")
        if starts is None:
            return False, None
        i = bisect_left(starts, start - _SAME_START_NS)
        if i < len(starts) and starts[i] <= start + _SAME_START_NS:
            return True, self._peers[worker or ""][i]
        return False, None

    def _sort(self) -> None:
        for worker, starts in self._starts.items():
            order = sorted(range(len(starts)), key=starts.__getitem__)
            self._starts[worker] = array("q", (starts[i] for i in order))
            peers = self._peers[worker]
            self._peers[worker] = [peers[i] for i in order]
        self._sorted = True


def scheduler_transitions(rows: pa.Table, incoming: IncomingTransfers) -> pa.Table:
    """Return rows of ``scheduler_transitions``.

    Parameters
    ----------
    rows : pyarrow.Table
        Rows of the file.
    incoming : IncomingTransfers
        All incoming transfers, to recognise intervals that are fetches.
    """
    return table(
        time=rows["time"],
        **key_columns(rows["key"]),
        start_state=rows["start"],
        finish_state=rows["finish"],
        stimulus_id=_maybe(rows, "stimulus_id"),
        worker=_maybe(rows, "worker"),
        thread=_maybe(rows, "thread"),
        nbytes=_maybe(rows, "size"),
        startstops=_startstops(rows, incoming),
        prefix=_maybe(rows, "prefix"),
        group=_maybe(rows, "group"),
        process=processes("scheduler", rows),
        **origin(rows),
    )


def worker_transitions(rows: pa.Table) -> pa.Table:
    """Return rows of ``worker_transitions``."""
    return table(
        time=rows["time"],
        worker=_maybe(rows, "called_from"),
        **key_columns(rows["key"]),
        start_state=rows["start"],
        finish_state=rows["finish"],
        process=processes("worker", rows),
        **origin(rows),
    )


def worker_events(rows: pa.Table) -> pa.Table:
    """Return rows of ``worker_events``, all from the scheduler."""
    return table(
        time=rows["time"],
        worker=_maybe(rows, "worker"),
        action=_replaced(_maybe(rows, "action"), {"add_worker": "add", "remove_worker": "remove"}),
        stimulus_id=_maybe(rows, "stimulus_id"),
        process=constant("scheduler", len(rows)),
        **origin(rows),
    )


def clients(rows: pa.Table) -> pa.Table:
    """Return rows of ``clients``."""
    names = {
        "add": "connect",
        "add_client": "connect",
        "remove": "disconnect",
        "remove_client": "disconnect",
    }
    return table(
        time=rows["time"],
        client=_maybe(rows, "client"),
        action=_replaced(_maybe(rows, "action"), names),
        process=constant("scheduler", len(rows)),
        **origin(rows),
    )


def transfer_tables(rows: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of all tables about transfers, by table.

    Parameters
    ----------
    rows : pyarrow.Table
        The columns of the file, and `number` (of this row among all) and `first` (number of
        the first row that is equal in everything except `time`).
    """
    resent = pc.not_equal(rows["number"], rows["first"])
    first, duplicates = rows.filter(pc.invert(resent)), rows.filter(resent)
    keys, n_keys = _transfer_keys(first)
    return {
        "transfer_ends": _transfer_ends(first, n_keys),
        "transfer_end_keys": table(
            number=keys["number"],
            **key_columns(keys["key"]),
            nbytes=keys["nbytes"],
            process=processes("worker", keys),
        ),
        "transfer_resends": table(
            number=duplicates["first"],
            time=duplicates["time"],
            process=processes("worker", duplicates),
            **origin(duplicates),
        ),
        "clock_offsets": _clock_offsets(first),
    }


def _transfer_keys(rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return number, called_from, key and nbytes of each key, and the keys per transfer."""
    rows = rows.select(["number", "called_from", "keys"])
    one = pc.extract_regex(rows["keys"], ONE_KEY)
    odd = one.is_null().combine_chunks()
    usual, several = rows.filter(pc.invert(odd)), rows.filter(odd)
    text, pair, nbytes = (
        pc.struct_field(one.drop_null(), name) for name in ("text", "pair", "nbytes")
    )
    positions, keys, sizes_found, counts = array("q"), [], array("q"), array("q")
    for position, cell in enumerate(several["keys"].to_pylist()):
        found = sizes(cell)
        counts.append(len(found))
        for key, n in found:
            positions.append(position)
            keys.append(key)
            sizes_found.append(n)
    # Drop the cells first: `take` would copy a cell once for each of its keys.
    repeated = several.drop_columns(["keys"]).take(pa.array(positions, pa.int64()))
    n_keys = pc.replace_with_mask(
        pa.repeat(pa.scalar(1, pa.int64()), len(rows)), odd, pa.array(counts, pa.int64())
    )
    all_keys = pa.concat_tables(
        [
            table(
                number=usual["number"],
                called_from=usual["called_from"],
                key=pc.if_else(pc.equal(pair, ""), text, pair),
                nbytes=nbytes.cast(pa.int64()),
            ),
            table(
                number=repeated["number"],
                called_from=repeated["called_from"],
                key=pa.array(keys, pa.string()),
                nbytes=pa.array(sizes_found, pa.int64()),
            ),
        ]
    )
    return all_keys, n_keys


def _transfer_ends(rows: pa.Table, n_keys: pa.ChunkedArray) -> pa.Table:
    return table(
        number=rows["number"],
        end=_replaced(rows["type"], TRANSFER_ENDS),
        start=rows["start"],
        stop=rows["stop"],
        worker=rows["called_from"],
        peer=rows["who"],
        total_bytes=rows["total"],
        compressed_bytes=rows["compressed"],
        n_keys=n_keys,
        time=rows["time"],
        middle=rows["middle"],
        duration_seconds=rows["duration"],
        bandwidth=rows["bandwidth"],
        process=processes("worker", rows),
        **origin(rows),
    )


def _clock_offsets(rows: pa.Table) -> pa.Table:
    """Return clock offsets: a sender shifts start and stop by its offset, but not the middle."""
    sent = rows.filter(
        pc.and_(pc.equal(rows["type"], "outgoing_transfer"), pc.is_valid(rows["middle"]))
    )
    start, stop, middle = (sent[name].cast(pa.int64()) for name in ("start", "stop", "middle"))
    differences = (pc.subtract(end, middle).cast(pa.float64(), safe=False) for end in (start, stop))
    return table(
        time=sent["time"],
        offset_seconds=pc.divide(pc.add(*differences), 2e9),
        process=processes("worker", sent),
        seq=sent["line"],
    )


def key_types(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Guess the type of each key from its text: the files do not contain it."""
    looks = pc.match_substring_regex(keys, r"^\(['\"(0-9-].*,.*\)$")
    return pc.if_else(looks, "tuple", "str")


def processes(role: str, rows: pa.Table) -> pa.ChunkedArray:
    """Return the process id of each row: the role, and the address in ``called_from`` if any."""
    return _named(role, _maybe(rows, "called_from"))


def _named(role: str, addresses: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return process ids from addresses, formatted once for each distinct address."""
    if pa.types.is_null(addresses.type):
        return constant(role, len(addresses))
    coded = addresses if pa.types.is_dictionary(addresses.type) else addresses.dictionary_encode()
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(
                pc.fill_null(chunk.indices, len(chunk.dictionary)).cast(pa.int32()),
                [f"{role}-{address}" for address in chunk.dictionary.to_pylist()] + [role],
            )
            for chunk in coded.chunks
        ],
        _TEXT,
    )


def _startstops(rows: pa.Table, incoming: IncomingTransfers) -> pa.Array:
    """Return ``begins`` and ``ends`` as one interval: of the task, or of the fetch before it."""
    begins, ends = _maybe(rows, "begins"), _maybe(rows, "ends")
    valid = pc.and_(begins.is_valid(), ends.is_valid())
    timed = rows.filter(valid)
    actions, sources = [], []
    workers = _maybe(timed, "worker").to_pylist()
    starts = _maybe(timed, "begins").cast(pa.int64()).to_pylist()
    for worker, start in zip(workers, starts, strict=True):
        fetched, source = incoming.source(worker, start)
        actions.append("transfer" if fetched else "compute")
        sources.append(source)
    values = pa.StructArray.from_arrays(
        [
            pa.array(actions, pa.string()),
            *(_maybe(timed, name).cast(_TIME).combine_chunks() for name in ("begins", "ends")),
            pa.array(sources, pa.string()),
        ],
        names=["action", "start", "stop", "source"],
    )
    counts = valid.cast(pa.int32()).combine_chunks()
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    return pa.ListArray.from_arrays(offsets, values, mask=pc.invert(valid).combine_chunks())


def key_columns(keys: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the columns ``key`` and ``key_type`` of keys."""
    return {"key": keys, "key_type": key_types(keys)}


def origin(rows: pa.Table | dict[str, pa.Array]) -> dict[str, pa.ChunkedArray]:
    """Return the columns with the file and the line of each row."""
    return {
        "file": rows["file"],
        "line": rows["line"],
        "salvaged": rows["cut"],
        "seq": rows["line"],
    }


def _maybe(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column, or nulls if the file lacks it."""
    if name in rows.column_names:
        return rows[name]
    return pa.chunked_array([pa.nulls(len(rows))])


def _replaced(column: pa.ChunkedArray, names: dict[str, str]) -> pa.ChunkedArray:
    """Replace some values of a column, given as old and new text."""
    if pa.types.is_null(column.type):
        return column
    plain = column.cast(pa.string())
    for old, new in names.items():
        plain = pc.if_else(pc.equal(plain, old), new, plain)
    return plain


def constant(value: str, n: int) -> pa.ChunkedArray:
    """Return a column with the same value n times."""
    return pa.chunked_array([pa.repeat(value, n)])


def table(**columns: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return a table with columns given by keyword."""
    return pa.table(columns)
