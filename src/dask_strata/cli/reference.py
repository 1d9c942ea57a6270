"""The page of all commands for the documentation, made from their help texts."""

from __future__ import annotations

import html
import inspect
import sys
import textwrap
from collections.abc import Iterator

import click

from dask_strata.cli import cli
from dask_strata.cli.commands import VERBS

#: Its name also where it is run as `__main__`.
_THIS_MODULE = __spec__.name

#: Mark of a paragraph whose line breaks click keeps.
_VERBATIM = "\b"


def commands_markdown() -> str:
    """Return the page about all commands for the documentation, in Markdown."""
    lines = [
        "# Commands",
        "",
        f"Made from the help texts by `python -m {_THIS_MODULE}`. A terminal shows the same with",
        "`dask-strata COMMAND --help`, and each command works as `dask strata COMMAND`, too.",
        "",
        "RUN is the folder of a run, a bundle, a URL of an object store ([places](places.md)), or",
        "a short name such as `latest` ([names](how-to/terminal.md#name-a-run)); RUNS is a folder",
        "or URL with runs in it.",
        "",
        "| command | result |",
        "|---|---|",
        *(f"| [`{name}`](#{name}) | {_prose(verb.help)} |" for name, verb in VERBS.items()),
        "",
        "The exit status is 0 after success, 1 after an error of the data or the environment, 2",
        "after wrong use, and 130 after Ctrl-C; `record` has that of its script. Commands with",
        "statuses of their own list them.",
        "",
        "`dask-strata --debug COMMAND` shows a traceback with an error.",
        "",
    ]
    for name, verb in VERBS.items():
        lines += _command(name, verb.load())
    return "\n".join(lines)


def _command(name: str, command: click.Command) -> Iterator[str]:
    """Yield the lines of a command's section."""
    group = click.Context(cli, info_name="dask-strata")
    context = click.Context(command, info_name=name, parent=group)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {name}", "", f"    dask-strata {name} {usage}", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from _paragraph(paragraph)
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = filter(None, (each.get_help_record(context) for each in options))
    rows = [f"| {_code(names)} | {_prose(text)} |" for names, text in records]
    if rows:
        yield from ("| option | meaning |", "|---|---|", *rows, "")


def _paragraph(text: str) -> Iterator[str]:
    """Yield the lines of a paragraph of a help text: verbatim below a mark, else as Markdown."""
    if _VERBATIM not in text:
        yield from (*text.splitlines(), "")
        return
    lines = text.replace(_VERBATIM, "").strip("\n").splitlines()
    if lines[0].endswith(":"):
        yield from (lines.pop(0), "")
    yield from (f"    {line}" for line in textwrap.dedent("\n".join(lines)).splitlines())
    yield ""


def _code(text: str) -> str:
    """Return code for a cell of a table; a bar in it is no end of the cell."""
    if "|" not in text:
        return f"`{text}`"
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def _prose(text: str) -> str:
    """Return text for a cell of a table, in which brackets are no links."""
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[")


if __name__ == "__main__":
    sys.stdout.write(commands_markdown())
