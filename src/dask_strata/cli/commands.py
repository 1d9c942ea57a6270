"""The commands: their names, their lines in the list, and functions that import them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import click


class Verb(NamedTuple):
    """One command.

    Attributes
    ----------
    help : str
        Its line in the list of commands.
    load : callable
        Function that imports and returns it, so that `--help` imports nothing heavy.
    """

    help: str
    load: Callable[[], click.Command]


def _record() -> click.Command:
    from dask_strata.cli.record import command

    return command


def _doctor() -> click.Command:
    from dask_strata.cli.doctor import command

    return command


def _demo() -> click.Command:
    from dask_strata.cli.demo import command

    return command


def _fetch() -> click.Command:
    from dask_strata.cli.fetch import command

    return command


def _list() -> click.Command:
    from dask_strata.cli.list import command

    return command


def _show() -> click.Command:
    from dask_strata.cli.show import command

    return command


def _report() -> click.Command:
    from dask_strata.cli.report import command

    return command


def _open() -> click.Command:
    from dask_strata.cli.open import command

    return command


def _compare() -> click.Command:
    from dask_strata.cli.compare import command

    return command


def _map() -> click.Command:
    from dask_strata.cli.map import command

    return command


def _tasks() -> click.Command:
    from dask_strata.cli.tasks import command

    return command


def _chunks() -> click.Command:
    from dask_strata.cli.chunks import command

    return command


def _io() -> click.Command:
    from dask_strata.cli.io import command

    return command


def _profile() -> click.Command:
    from dask_strata.cli.profile import command

    return command


def _story() -> click.Command:
    from dask_strata.cli.story import command

    return command


def _why() -> click.Command:
    from dask_strata.cli.why import command

    return command


def _logs() -> click.Command:
    from dask_strata.cli.logs import command

    return command


def _follow() -> click.Command:
    from dask_strata.cli.follow import command

    return command


def _stream() -> click.Command:
    from dask_strata.cli.stream import command

    return command


def _lineage() -> click.Command:
    from dask_strata.cli.lineage import command

    return command


def _jobs() -> click.Command:
    from dask_strata.cli.jobs import command

    return command


def _query() -> click.Command:
    from dask_strata.cli.query import command

    return command


def _tables() -> click.Command:
    from dask_strata.cli.tables import command

    return command


def _serve() -> click.Command:
    from dask_strata.cli.serve import command

    return command


def _check() -> click.Command:
    from dask_strata.cli.check import command

    return command


def _compact() -> click.Command:
    from dask_strata.cli.compact import command

    return command


def _tag() -> click.Command:
    from dask_strata.cli.tag import command

    return command


def _upload() -> click.Command:
    from dask_strata.cli.upload import command

    return command


def _export() -> click.Command:
    from dask_strata.cli.export import command

    return command


def _import() -> click.Command:
    from dask_strata.cli.import_ import command

    return command


VERBS: dict[str, Verb] = {
    "record": Verb("run a script and record every Dask cluster that it uses", _record),
    "doctor": Verb("show whether a cluster is recorded, and the remedy otherwise", _doctor),
    "demo": Verb("record an example run: the first thing to try", _demo),
    "fetch": Verb("copy runs here from a scheduler that has another file system", _fetch),
    "list": Verb("list the runs in a folder", _list),
    "show": Verb("summary of a run: tasks, times, errors, insights", _show),
    "report": Verb("write one HTML page: verdict, timeline, tables", _report),
    "open": Verb("open the page of a run in the browser", _open),
    "compare": Verb("what differs between runs, and what of it is more than noise", _compare),
    "map": Verb("the metadata map: number of rows by step and layer", _map),
    "tasks": Verb("tasks, one row each", _tasks),
    "chunks": Verb("chunks of input files: their workers, times and bytes read", _chunks),
    "io": Verb("input and output of tasks, from Darshan's logs", _io),
    "profile": Verb(
        "time in functions and coroutines by owner of the code, if it was profiled", _profile
    ),
    "story": Verb("all events of one task, in time order", _story),
    "why": Verb("why workers ended: whose act, what ran, what was lost", _why),
    "logs": Verb("what processes logged and printed", _logs),
    "follow": Verb("rows of a run in their order, while it is recorded or later", _follow),
    "stream": Verb("send the rows of a run to Kafka, Redis, Mofka or a file", _stream),
    "lineage": Verb("origin and use of a task's result or of a file", _lineage),
    "jobs": Verb("batch jobs: states, waits, limits, workers and tasks", _jobs),
    "query": Verb("run an SQL query over the tables", _query),
    "tables": Verb("the tables of every run and their columns", _tables),
    "serve": Verb("show the runs of a folder in a browser", _serve),
    "check": Verb("check whether the record is complete", _check),
    "compact": Verb("convert the record to Parquet", _compact),
    "tag": Verb("add tags and a note to a run, beside its record", _tag),
    "upload": Verb("upload a run to a URL such as s3://bucket/runs", _upload),
    "export": Verb("write a run in the format of another tool", _export),
    "import": Verb(
        "import a stream, files of the Mofka-Dask coupler, Darshan logs or profiles", _import
    ),
}
