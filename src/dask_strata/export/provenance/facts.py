"""The facts about a run as a whole that both formats of provenance contain."""

from __future__ import annotations

from dataclasses import dataclass

from dask_strata.run import Run
from dask_strata.schema import LEFT_OUT

#: Packages whose versions are those of agents, by the column of `processes`.
PACKAGES = {
    "python": "Python",
    "dask": "dask",
    "distributed": "distributed",
    "dask_strata": "dask-strata",
}

#: A moment as text, in SQL; null remains null.
MOMENT = "strftime(make_timestamp(epoch_ns({0}) // 1000), '%Y-%m-%dT%H:%M:%S.%f+00:00')"

_SOFTWARE = " union ".join(
    f"select '{package}' as name, {column} as version from processes where {column} is not null"  # noqa: S608  names of this module
    for column, package in PACKAGES.items()
)

_USERS = """
    select process, coalesce(min(value) filter (name = 'process.user'),
        min(value) filter (name = 'process.uid')) as "user"
    from job where name in ('process.user', 'process.uid') group by process order by process
"""

_BOUNDS = f"""
    select {MOMENT.format("first")} as start, {MOMENT.format("last")} as stop,
           epoch_ns(first) as start_ns, epoch_ns(last) as stop_ns from _bounds
"""  # noqa: S608  an expression of this module

#: The scripts of clients in the order of their start; other processes have no kind.
_SCRIPTS = """
    select s.process, s.name, s.value from script s left join processes p using (process)
    where s.process in (select process from script where name = 'kind')
    order by p.start, s.process, s.name
"""


@dataclass(frozen=True)
class Script:
    """The program of a client.

    Attributes
    ----------
    process : str
        Process of the client.
    facts : dict of str to str
        Its rows in the table `script`: path, text, sha256, argv, git_commit, …
    """

    process: str
    facts: dict[str, str]

    def fact(self, name: str) -> str | None:
        """Return a fact; None if it is not on record or was left out."""
        value = self.facts.get(name)
        return None if value == LEFT_OUT else value

    @property
    def name(self) -> str:
        """The name of the program's file, its module, or its kind."""
        path = self.fact("path")
        if path is not None:
            return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path
        return self.fact("module") or self.fact("name") or self.fact("kind") or self.process


@dataclass(frozen=True)
class Facts:
    """Recorded facts about a run as a whole.

    Attributes
    ----------
    run_id, name : str
        Of the run.
    start, stop : str or None
        First and last moment, in ISO 8601.
    start_ns, stop_ns : int or None
        The same in nanoseconds.
    users : dict of str to str
        Name or number of the user, by process.
    software : tuple of (str, str)
        Packages and their versions, without duplicates.
    scripts : tuple of Script
        Programs of clients, the first one first.
    """

    run_id: str
    name: str
    start: str | None
    stop: str | None
    start_ns: int | None
    stop_ns: int | None
    users: dict[str, str]
    software: tuple[tuple[str, str], ...]
    scripts: tuple[Script, ...]

    @property
    def user_names(self) -> list[str]:
        """The users, each once."""
        return sorted(set(self.users.values()))


def facts_of(run: Run) -> Facts:
    """Return the facts about a run as a whole."""
    bounds = run.rows(_BOUNDS)[0]
    programs: dict[str, dict[str, str]] = {}
    for row in run.rows(_SCRIPTS):
        programs.setdefault(row["process"], {})[row["name"]] = row["value"]
    return Facts(
        run.manifest.run_id,
        run.name,
        bounds["start"],
        bounds["stop"],
        bounds["start_ns"],
        bounds["stop_ns"],
        {row["process"]: row["user"] for row in run.rows(_USERS)},
        tuple(
            (row["name"], row["version"]) for row in run.rows(f"{_SOFTWARE} order by name, version")
        ),
        tuple(Script(process, facts) for process, facts in programs.items()),
    )
