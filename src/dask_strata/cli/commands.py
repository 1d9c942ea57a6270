"""The commands: their names, a line of help, and how each is loaded when it is called."""

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
        Imports and returns it; kept apart, so that `--help` imports nothing heavy.
    """

    help: str
    load: Callable[[], click.Command]


def _record() -> click.Command:
    from dask_strata.cli.record import command

    return command


def _demo() -> click.Command:
    from dask_strata.cli.demo import command

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


def _import() -> click.Command:
    from dask_strata.cli.import_ import command

    return command


VERBS: dict[str, Verb] = {
    "record": Verb("run a script, and record every Dask cluster it uses", _record),
    "demo": Verb("record an image-processing example: the first thing to try", _demo),
    "list": Verb("runs in a folder", _list),
    "show": Verb("what ran, how long, where the time went, what stands out", _show),
    "report": Verb("one page to look at, offline: verdict, timeline, tables", _report),
    "map": Verb("the metadata map, with its counts", _map),
    "tasks": Verb("one row a task", _tasks),
    "chunks": Verb("which worker processed which part of which file, and how fast", _chunks),
    "io": Verb("what tasks read and wrote, as Darshan traced it", _io),
    "profile": Verb(
        "time in functions and coroutines, and whose code it is, if it was profiled", _profile
    ),
    "story": Verb("everything about one task, in time order", _story),
    "query": Verb("SQL over all tables", _query),
    "tables": Verb("the tables that every run has, and their columns", _tables),
    "serve": Verb("the runs of a folder in the browser", _serve),
    "check": Verb("is the record whole?", _check),
    "compact": Verb("turn the record into Parquet", _compact),
    "import": Verb(
        "make a run of the Mofka-Dask coupler's CSV files, or add Darshan's logs to a run", _import
    ),
}
