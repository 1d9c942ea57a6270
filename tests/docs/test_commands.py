"""The commands and queries in the documentation are valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from dask_strata import open_run
from dask_strata.cli import cli
from dask_strata.cli.commands import VERBS
from tests.support.synthetic import small_run

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

#: A command in a block of code or in code quotes, up to a comment, a pipe or the end.
_COMMAND = re.compile(
    rf"dask[- ]strata ({'|'.join(VERBS)}) ([^\n`]*?)(?=`|\s#|\s\||\s>|$)", re.MULTILINE
)

#: An option outside of quotes. A value may follow its equals sign.
_OPTION = re.compile(r"(?<!\S)(--?[a-zA-Z][\w-]*)")

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")

#: The script or module of `record`, whose own options follow.
_SCRIPT = re.compile(r"\S+\.py\b|(?<=-m )\S+")

#: A query in a command or in Python. Queries with … are parts.
_QUERY = re.compile(
    r"(?:dask-strata query \S+ |run\.sql\(\s*)(?P<quote>['\"])(?P<sql>[^…]*?)(?P=quote)(?=[\s`)])"
)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command with its arguments, those of a recorded script left out."""
    for verb, arguments in _COMMAND.findall(re.sub(r"\\\n\s*", " ", text)):
        yield verb, _SCRIPT.split(arguments)[0] if verb == "record" else arguments


def options(verb: str) -> set[str]:
    """Return the options of a command."""
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    found = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return found | {"--help"}


def test_the_options_of_commands_in_the_documentation_exist() -> None:
    """Each option of each command on each page is one of that command."""
    n_options = 0
    for page in PAGES:
        for verb, arguments in commands(page.read_text(encoding="utf-8")):
            named = _OPTION.findall(_QUOTED.sub("", arguments))
            if verb == "tasks":  # `--sort -started` sorts from the last
                named = [name for name in named if name.startswith("--")]
            n_options += len(named)
            assert set(named) <= options(verb), f"{page.name}: {verb} {arguments}"
    assert n_options > 200


def test_the_queries_in_the_documentation_are_valid(tmp_path: Path) -> None:
    """Each query on each page is answered by a run."""
    run = open_run(small_run(tmp_path / "run"))
    n_queries = 0
    for page in PAGES:
        for found in _QUERY.finditer(page.read_text(encoding="utf-8")):
            n_queries += 1
            try:
                run.sql(found["sql"]).to_arrow()
            except Exception as error:
                raise AssertionError(f"{page.name}: {found['sql']}") from error
    assert n_queries > 80
