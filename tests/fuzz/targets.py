"""Each reader of untrusted input as a function of bytes: an exception is a bug.

The property tests and ``benchmarks/fuzz.py`` use ``TARGETS``. Each target makes a function that
takes bytes, in its own folder, and has valid seeds.
"""

from __future__ import annotations

import contextlib
import io
import pstats
import shutil
import zlib
from collections.abc import Callable, Sequence
from cProfile import Profile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgpack

from dask_strata import open_run
from dask_strata.analysis.overview.row import stored_row
from dask_strata.analysis.overview.stored import store_summary
from dask_strata.brokers.address import parse_address
from dask_strata.brokers.message import decode, to_table
from dask_strata.errors import MessageError, StrataError, UsageError
from dask_strata.importers.darshan.dxt import Trace
from dask_strata.importers.darshan.log import LogError, open_log
from dask_strata.importers.mofka import literals
from dask_strata.importers.mofka.importer import import_files
from dask_strata.importers.profiles.callgrind import CallgrindError, read_callgrind
from dask_strata.importers.profiles.yappi_files import read_profile
from dask_strata.schema import RECORDED, Kind
from dask_strata.server.run_cache import RunCache
from dask_strata.store.arrow import Rows
from dask_strata.store.compact import compact
from dask_strata.store.index import read_index
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import INDEX, PARQUET, Manifest
from dask_strata.store.parquet import open_part, read_part
from dask_strata.store.reader import read_record
from dask_strata.store.segments.decode import unpack
from dask_strata.store.segments.encode import encode_column
from dask_strata.store.segments.frames import payloads
from dask_strata.store.segments.read import read_segment
from dask_strata.store.sinks import RelaySink
from dask_strata.store.summaries.files import SUMMARY, list_files
from dask_strata.store.summaries.notes import NOTES, read_notes, readable_notes
from dask_strata.store.summaries.summary_file import read_summary
from tests.fuzz.hostile import HEADER, batch, frame
from tests.support import coupler_files
from tests.support.darshan_files import Log, Operation, TracedFile
from tests.support.streams import first_and_last, messages_of
from tests.support.synthetic import T0, small_run

Reads = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """A reader, made in a folder, and seeds: valid inputs to mutate."""

    make: Callable[[Path], Reads]
    seeds: Callable[[Path], Sequence[bytes]]


def _run(folder: Path, *, compacted: bool = False) -> Path:
    run = small_run(folder / "run")
    if compacted:
        compact(run)
    return run


def _file_of_run(name: str, read_it: Callable[[Path], object], *, compacted: bool) -> Target:
    """Return a target that replaces a file of a run by the bytes, and reads the run."""

    def make(folder: Path) -> Reads:
        run = _run(folder, compacted=compacted)

        def read(data: bytes) -> None:
            (run / name).write_bytes(data)
            with contextlib.suppress(StrataError):
                read_it(run)

        return read

    return Target(make, lambda folder: [(_run(folder, compacted=compacted) / name).read_bytes()])


def _read_segment(run: Path) -> None:
    """Read a segment into the largest tables only, as all of them take longer."""
    names = ("processes", "job", "scheduler_transitions", "worker_events", "counters")
    rows = {name: Rows(RECORDED[name]) for name in names}
    read_segment(run, "synth", "scheduler-1.seg", None, (rows, Budget()))
    for collected in rows.values():
        collected.table()


def _read_index(run: Path) -> None:
    with contextlib.suppress(ValueError, OSError):
        read_index(run, PARQUET)


def _read_parquet(run: Path) -> None:
    read_part(open_part(run, "synth", "Parquet", PARQUET), Budget(), lambda _name, _count: None)


def _notes(folder: Path) -> Reads:
    """Put the bytes into the tags and the note of a run, which lists show as they are."""

    def read(data: bytes) -> None:
        (folder / NOTES).write_bytes(data)
        notes = readable_notes(folder)
        assert all(tag.isprintable() for tag in notes.tags)
        with contextlib.suppress(StrataError):
            read_notes(folder)

    folder.mkdir(parents=True, exist_ok=True)
    return read


def _summaries(folder: Path) -> Reads:
    """Put the bytes into a summary with a valid checksum, so that its parts are read."""
    run = _run(folder, compacted=True)
    files = list_files(run)

    def read(data: bytes) -> None:
        for content in (data, b'{"crc32": %d,\n' % zlib.crc32(data) + data):
            (run / PARQUET / SUMMARY).write_bytes(content)
            stored_row(files)
            stored = read_summary(files, verify=True)
            for name in ("summary", "compare") if stored else ():
                with contextlib.suppress(ValueError, LookupError, RecursionError):
                    stored.part(name)

    return read


def _summary(folder: Path) -> list[bytes]:
    run = _run(folder, compacted=True)
    assert store_summary(run)
    data = (run / PARQUET / SUMMARY).read_bytes()
    return [data, data.partition(b"\n")[2]]


def _frames(folder: Path) -> Reads:
    """Put the bytes into a frame with a valid checksum, so that its content is decoded."""
    run = _run(folder)
    path = run / "segments" / "scheduler-1.seg"
    header = frame(HEADER)

    def read(data: bytes) -> None:
        path.write_bytes(header + frame(data))
        _read_segment(run)

    return read


def _contents(folder: Path) -> list[bytes]:
    data = (_run(folder) / "segments" / "scheduler-1.seg").read_bytes()
    return [msgpack.packb(unpack(p)) for p in payloads(data) if isinstance(p, bytes)]


def _columns(folder: Path) -> Reads:
    """Put the bytes into a frame as one column of many rows, in a column of each kind."""
    path = _run(folder) / "segments" / "scheduler-1.seg"
    start = frame(HEADER | {"process": "scheduler-1"})
    names = [(table, c.name) for table, c in _ONE_OF_EACH_KIND]

    def read(data: bytes) -> None:
        n = data[0] + 1 if data else 1
        frames = b""
        for i, (table, name) in enumerate(names):
            head = msgpack.packb(batch(table, n, i * n, **{name: _HERE}))
            frames += frame(head.replace(msgpack.packb(_HERE), data[1:]))
        path.write_bytes(start + frames)
        rows = {table: Rows(RECORDED[table]) for table, _ in names}
        read_segment(folder / "run", "synth", "scheduler-1.seg", None, (rows, Budget()))
        for collected in rows.values():
            collected.table().validate(full=True)

    return read


#: Placeholder that the bytes of a column replace.
_HERE = "(the column)"

_ONE_OF_EACH_KIND = list(
    {c.kind: (name, c) for name, table in RECORDED.items() for c in table.columns}.values()
)


def _typed_columns(_: Path) -> list[bytes]:
    """Return columns of each kind, with and without nulls, after their number of rows."""
    intervals = [[["compute", i, 5, None], ["transfer", i, 6, "w"]] for i in range(70)]
    usual: dict[Kind, list[Any]] = {
        "time": [T0 + 7 * i * i for i in range(70)],
        "int": [300 * i for i in range(70)],
        "float": [1.5 * i for i in range(70)],
        "bool": [i % 3 == 0 for i in range(70)],
        "text": [f"é{i % 7}" for i in range(70)],
        "key": [f"key-{i}" for i in range(70)],
        "intervals": intervals,
    }
    columns = [
        (kind, [None if nulls and i % 3 else v for i, v in enumerate(values)])
        for kind, values in usual.items()
        for nulls in (False, True)
    ]
    return [bytes([69]) + msgpack.packb(encode_column(k, values, 70)) for k, values in columns]


def _coupler(role: str) -> Target:
    rows = {
        "worker_transition": [coupler_files.worker("k", "waiting", "memory", 1.0)],
        "worker_transfer": [coupler_files.transfer({"k": 1}, 1.0, 2.0)],
        "graph": [{"client": "c", "keys": ["a"], "dependencies": {"a": {"b"}}, "time": 1.0}],
    }[role]

    def make(folder: Path) -> Reads:
        def read(data: bytes) -> None:
            path = folder / f"{role}.csv"
            path.write_bytes(data)
            try:
                with contextlib.suppress(StrataError):
                    done = import_files({role: path}, folder / "runs", name="fuzz")
                    read_record(done.path)
            finally:
                shutil.rmtree(folder / "runs", ignore_errors=True)

        return read

    return Target(make, lambda _: [coupler_files.text(role, rows).encode()])


def _literals(_: Path) -> Reads:
    def read(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for reader in (literals.sizes, literals.keys, lambda t: list(literals.dependencies(t))):
            with contextlib.suppress(literals.LiteralError):
                reader(text)

    return read


def _of_file(name: str, read_it: Callable[[Path], object]) -> Callable[[Path], Reads]:
    """Return a maker of a reader of a file with that name; its errors for users are expected."""

    def make(folder: Path) -> Reads:
        def read(data: bytes) -> None:
            (folder / name).write_bytes(data)
            with contextlib.suppress(StrataError, LogError, CallgrindError):
                read_it(folder / name)

        return read

    return make


def _read_log(path: Path) -> None:
    log = open_log(path)
    known = log.read_names()
    for module in ("DXT_POSIX", "DXT_MPIIO"):
        if module in log.modules:
            for _ in Trace(log, module, known):
                pass


def _logs(_: Path) -> list[bytes]:
    done = [Operation(offset=0, length=8, start=1.0, stop=2.0, thread=1)]
    traced = [TracedFile(name="/a", writes=done, reads=done, host="h")]
    made = [Log(files=traced, layout=n, order="<", compression=c) for n, c in ((32, 0), (96, 1))]
    return [log.bytes() for log in made]


CALLGRIND = b"""version: 1
creator: yappi
events: Ticks

fl=(1) /a.py
fn=(1) main /a.py:3
3 1500000
cfl=(1)
cfn=(1)
calls=4 0
0 500000
"""


def _profile(folder: Path) -> list[bytes]:
    profile = Profile()
    profile.runcall(sorted, [3, 1, 2], key=abs)
    pstats.Stats(profile, stream=io.StringIO()).dump_stats(folder / "seed.pstat")
    return [(folder / "seed.pstat").read_bytes()]


def _relayed(folder: Path) -> Reads:
    """Relay the name of a process and its frames, as received over a comm."""
    (folder / "inside").mkdir()

    def read(data: bytes) -> None:
        name, _, frames = data.partition(b"\n")
        sink = RelaySink(folder / "inside", ".seg")
        with contextlib.suppress(ValueError):
            sink.write(RelaySink.label(name.decode("utf-8", "replace"), frames), 0)
            assert sink.error is None
        assert [p.name for p in folder.iterdir()] == ["inside"]
        for path in (folder / "inside").iterdir():
            assert path.suffix == ".seg"
            path.unlink()

    return read


def _addresses(folder: Path) -> Reads:
    """Look up a run by the name in an address."""
    small_run(folder / "runs" / "r")
    small_run(folder / "secret")
    cache = RunCache(folder / "runs")

    def read(data: bytes) -> None:
        for name in {data.decode("latin-1"), unquote(data.decode("latin-1"))}:
            with contextlib.suppress(StrataError):
                assert cache.path(name) == folder / "runs" / "r"

    return read


_SEGMENT = "segments/scheduler-1.seg"


def _messages(folder: Path) -> Reads:
    del folder

    def read(data: bytes) -> None:
        with contextlib.suppress(MessageError):
            message = decode(data)
            if message.table is not None:
                to_table(message.table, [message]).to_pylist()

    return read


def _sent(folder: Path) -> list[bytes]:
    del folder
    made = [*first_and_last("r"), *messages_of("r", "p", rows=1, form="arrow")[:8]]
    return [m.data for m in (*made, *messages_of("r", "p", rows=1)[:8])]


def _stream_addresses(folder: Path) -> Reads:
    del folder

    def read(data: bytes) -> None:
        with contextlib.suppress(UsageError):
            str(parse_address(data.decode("utf-8", "replace")))

    return read


TARGETS: dict[str, Target] = {
    "manifest": _file_of_run("run.json", Manifest.read, compacted=False),
    "segment": _file_of_run(_SEGMENT, _read_segment, compacted=False),
    "frame": Target(_frames, _contents),
    "columns": Target(_columns, _typed_columns),
    "check": _file_of_run(_SEGMENT, lambda run: open_run(run).check(), compacted=False),
    "index": _file_of_run(f"{PARQUET}/{INDEX}", _read_index, compacted=True),
    "parquet": _file_of_run(
        f"{PARQUET}/worker_events/part-0.parquet", _read_parquet, compacted=True
    ),
    "summary": Target(_summaries, _summary),
    "notes": Target(_notes, lambda _: [b'{"format": 1, "tags": ["a", "b=c"], "note": "x\\ny"}']),
    "transitions.csv": _coupler("worker_transition"),
    "transfers.csv": _coupler("worker_transfer"),
    "graph.csv": _coupler("graph"),
    "literals": Target(_literals, lambda _: [b"{'a': 1, ('b', 2): 3}", b"{'a', ('b', 1)}"]),
    "darshan": Target(_of_file("a.darshan", _read_log), _logs),
    "callgrind": Target(_of_file("a.callgrind", read_callgrind), lambda _: [CALLGRIND]),
    "pstat": Target(_of_file("a.pstat", read_profile), _profile),
    "relay": Target(_relayed, lambda _: [b"worker-0a1b2c3d\n" + frame(HEADER)]),
    "message": Target(_messages, _sent),
    "stream": Target(
        _stream_addresses, lambda _: [b"redis://u:p@h:1/2?stream=s", b"kafka://a,b/t?x.y=z"]
    ),
    "address": Target(_addresses, lambda _: [b"r", b"..%2fsecret", b"../secret", b"%00"]),
}
