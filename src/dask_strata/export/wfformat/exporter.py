"""WfCommons' WfFormat: tasks, files and machines of a run, for simulators and generators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.series.columns import Array, Names, columns
from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.json_text import Items, Lists, dumps, joined, member, number_member
from dask_strata.export.wfformat.files import Files
from dask_strata.export.wfformat.lives import SORTED_TASKS, UNNAMED, Edges, Lives
from dask_strata.export.wfformat.machines import hosts_of_workers, machines

if TYPE_CHECKING:
    from dask_strata.run import Run

_SPECIFIED = f"""
    select _key::bigint as key, life,
           '{{"name":' || to_json(coalesce(nullif(prefix, ''), '{UNNAMED}')) || ',"id":' as head,
           {member("key", "key")} || {member("keyType", "key_type")}
           || ',"life":' || life || '}}' as tail
    from tasks t where _key is not null
"""  # noqa: S608  no value of the record

#: Rows that are made into text at once.
_ROWS = 32_768

#: Tasks that are sorted at once.
_PART = 1 << 17

#: Texts are joined in DuckDB; a number that is not finite is unknown.
_EXECUTED = f"""
    select _key::bigint as key, life, coalesce(worker, '') as worker,
           ',"runtimeInSeconds":' || compute_seconds
           || coalesce(',"executedAt":"' || strftime(make_timestamp(epoch_ns(started) // 1000),
                       '%Y-%m-%dT%H:%M:%S.%fZ') || '"', '')
           || coalesce(',"command":{{"program":' || to_json(nullif(function, '')) || '}}', '')
           || ',"coreCount":1'
           || {
    number_member(
        "avgCPU",
        "(100 * (cpu_seconds + coalesce(other_cpu_seconds, 0)) / nullif(compute_seconds, 0))",
    )
} as text
    from tasks t where _key is not null and isfinite(compute_seconds)
"""  # noqa: S608  no value of the record

_COUNTS = """
    select count(*) filter (_key is not null) as n,
           count(*) filter (isfinite(compute_seconds)) as executed,
           count(*) filter (n_attempts > 1) as repeated,
           min(epoch_ns(coalesce(started, _since))) as start, max(epoch_ns(finished)) as stop
    from tasks
"""

#: Members of an executed task that its attempts have, in SQL.
_MEASURED = {
    "readBytes": "read_bytes + coalesce(other_read_bytes, 0)",
    "writtenBytes": "write_bytes + coalesce(other_write_bytes, 0)",
    "memoryInBytes": "rss_peak_bytes",
}


class WfFormat(Exporter):
    """An instance in WfCommons' WfFormat 1.5."""

    name: ClassVar[str] = "wfformat"
    summary: ClassVar[str] = "WfCommons' WfFormat 1.5: tasks, files and machines, for simulators"
    suffix: ClassVar[str] = ".json"
    media_type: ClassVar[str | None] = "application/json"

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write a run as an instance."""
        counts = run.rows(_COUNTS)[0]
        if not counts["n"]:
            job.note("The run has no tasks: WfCommons accepts no instance without any.")
        with path.open("xb") as file:
            _Instance(run, file, job, counts).write()


class _Instance:
    """One instance while it is written."""

    def __init__(self, run: Run, file: BinaryIO, job: Job, counts: dict[str, Any]) -> None:
        self._run = run
        self._file = file
        self._job = job
        self._counts = counts
        self._lives = Lives(run)
        self._edges = self._lives.edges(run)
        self._files = Files(run, self._lives)

    def write(self) -> None:
        self._note()
        head = {
            "name": self._run.name or "run",
            "description": "Tasks of a Dask run, as dask-strata recorded them",
            "createdAt": _iso(self._run.manifest.created_ns),
            "schemaVersion": "1.5",
            **_runtime_system(self._run),
        }
        self._text(dumps(head)[:-1] + ',"workflow":{"specification":{"tasks":[')
        self._specify()
        self._text('],\n"files":[')
        items = Items(self._file)
        self._files.write(items)
        self._text("]}")
        self._job.counts["files"] = items.n
        self._job.counts["dependencies"] = len(self._edges.parent)
        self._execute()
        extra = {"run": self._run.manifest.run_id, "notes": self._job.notes}
        self._text("},\n" + dumps({"daskStrata": extra})[1:] + "\n")

    def _text(self, text: str) -> None:
        self._file.write(text.encode())

    def _specify(self) -> None:
        lives, edges, n = self._lives, self._edges, len(self._lives)
        parents = Lists(edges.child, edges.parent, lives.id_of, n)
        children = Lists(edges.parent, edges.child, lives.id_of, n)
        items = Items(self._file)
        for batch, number in self._batches(_SPECIFIED):
            text = joined(
                batch.column("head"),
                lives.id_of(number),
                ',"parents":[',
                parents.of(number),
                '],"children":[',
                children.of(number),
                "]",
                *self._files_of(number),
                batch.column("tail"),
            )
            items.write(text)
            self._job.progress(items.n, 2 * self._counts["n"])
        self._job.counts["tasks"] = items.n

    def _files_of(self, number: Array) -> list[pa.Array | str]:
        if not len(self._files):
            return []
        files = self._files
        return [
            ',"inputFiles":[', files.inputs.of(number),
            '],"outputFiles":[', files.outputs.of(number), "]",
        ]  # fmt: skip

    def _execute(self) -> None:
        counts = self._counts
        if not counts["executed"] or counts["start"] is None or counts["stop"] is None:
            self._job.note("No task has a known duration: the instance has no execution.")
            return
        head = {
            "makespanInSeconds": (counts["stop"] - counts["start"]) / 1e9,
            "executedAt": _iso(counts["start"]),
        }
        self._text(',\n"execution":' + dumps(head)[:-1] + ',"tasks":[')
        hosts = hosts_of_workers(self._run)
        measured = self._measured()
        workers = Names()
        items = Items(self._file)
        for batch, number in self._batches(_EXECUTED):
            codes = workers.codes(batch.column("worker"))
            found = [hosts.get(worker) for worker in workers.names]
            machine = [f',"machines":[{dumps(host)}]' if host else "" for host in found]
            text = joined(
                '{"id":',
                self._lives.id_of(number),
                batch.column("text"),
                *(_number(name, values[number]) for name, values in measured.items()),
                pa.array(machine, pa.string()).take(pa.array(codes)),
                "}",
            )
            items.write(text)
            self._job.progress(counts["n"] + items.n, 2 * counts["n"])
        self._text("]")
        used = sorted({hosts[worker] for worker in workers.names if worker in hosts})
        if used:
            described = machines(self._run, used)
            self._text(',\n"machines":' + dumps(described))
            self._job.counts["machines"] = len(described)
        self._text("}")

    def _batches(self, query: str) -> Iterator[tuple[pa.RecordBatch, Array]]:
        """Yield the rows of a query about tasks, in their order, with the number of each task."""
        for part in self._parts():
            for batch in self._run.batches(f"{query} {part}", batch_rows=_ROWS):
                key, life = (batch.column(i).to_numpy(zero_copy_only=False) for i in (0, 1))
                if len(batch):
                    yield batch, self._lives.number(key, life)

    def _parts(self) -> Iterator[str]:
        """Yield the order of tasks, and for large runs the bounds of parts that are sorted."""
        if len(self._lives) <= SORTED_TASKS:
            yield "order by t.key, t.key_type, t.life"
            return
        firsts: list[int | None] = [*self._lives.every(_PART), None]
        for first, end in pairwise(firsts):
            before = "" if end is None else f"and _key < {end}"
            yield f"and _key >= {first} {before} order by _key, t.life"

    def _measured(self) -> dict[str, Array]:
        """Return measured values of all attempts at each task; NaN where one is unknown."""
        counts = ", ".join(f'count({sql}) as "{name}"' for name, sql in _MEASURED.items())
        known = self._run.rows(f"select {counts} from attempts")[0]  # noqa: S608
        chosen = {name: sql for name, sql in _MEASURED.items() if known[name]}
        if not chosen:
            return {}
        values = ", ".join(f'coalesce({sql}, -1) as "{name}"' for name, sql in chosen.items())
        found = columns(
            self._run,
            "select _key::bigint as key, coalesce(epoch_ns(start), -1) as start, "  # noqa: S608
            f"{values} from attempts where _key is not null",
        )
        lives = self._lives
        rows, task = lives.of_key(found["key"])
        # An attempt belongs to the last life of its key that had started by then.
        begun = lives.started[task] <= found["start"][rows]
        rows, task = rows[begun], task[begun]
        last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
        rows, task = rows[last], task[last]
        measured = {}
        for name in chosen:
            values = np.where(found[name] < 0, np.nan, found[name])[rows]
            total = np.full(len(lives), np.nan)
            total[task] = 0
            with np.errstate(invalid="ignore"):  # unknown with unknown is unknown
                (np.maximum if name == "memoryInBytes" else np.add).at(total, task, values)
            measured[name] = total
        return measured

    def _note(self) -> None:
        edges, files, job = self._edges, self._files, self._job
        for n, text in _left_out(edges, files):
            if n:
                job.note(text.format(n=n))
        without = self._counts["n"] - self._counts["executed"]
        if without:
            job.note(f"{without:,} tasks have no known duration: they are not in the execution.")
        if self._counts["repeated"]:
            job.note(
                f"{self._counts['repeated']:,} tasks had several attempts: their runtime is that "
                "of all attempts together."
            )


_LATE = "{n:,} dependencies on results that were not complete when the task started are left out."


def _left_out(edges: Edges, files: Files) -> list[tuple[int, str]]:
    return [
        (edges.unknown, "{n:,} dependencies on keys without a task on record are left out."),
        (edges.itself, "{n:,} dependencies of a task on itself are left out."),
        (edges.late, _LATE),
        (edges.cyclic, "{n:,} dependencies that close a cycle are left out."),
        (files.unknown, "{n:,} files of unknown size are left out."),
        (files.changed, "{n:,} files were seen with several sizes: the largest counts."),
    ]


def _number(name: str, values: Array) -> pa.Array:
    """Return a member with a whole number; empty where it is unknown."""
    known = np.isfinite(values)
    texts = pa.array(np.where(known, values, 0).astype(np.int64)).cast(pa.string())
    return pc.if_else(pa.array(known), joined(f',"{name}":', texts), "")


def _iso(ns: int) -> str:
    moment = datetime.fromtimestamp(ns // 1_000_000_000, timezone.utc)
    return moment.isoformat().replace("+00:00", f".{ns // 1000 % 1_000_000:06d}Z")


def _runtime_system(run: Run) -> dict[str, Any]:
    found = run.rows(
        "select distributed from processes where distributed is not null "
        "order by role <> 'scheduler', process limit 1"
    )
    if not found:
        return {}
    version = found[0]["distributed"]
    system = {"name": "Dask.distributed", "version": version, "url": "https://distributed.dask.org"}
    return {"runtimeSystem": system}
