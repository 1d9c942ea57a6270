"""``dask-strata compare``: what differs between runs, and what of it is more than noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from dask_strata.analysis.compare import compare
from dask_strata.analysis.compare.gate import HOLDS, parse_limit
from dask_strata.cli.run_names import RunName, find_run
from dask_strata.errors import NotJudgedError, StrataError, UsageError
from dask_strata.report.comparison import FORMATS, print_comparison, write_comparison
from dask_strata.report.progress import working
from dask_strata.report.words import size, visible


class _WithGroups(click.Command):
    """A command of which the arguments after ``--group NAME`` belong to this group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        groups: list[tuple[str, list[str]]] = []
        ctx.obj = groups
        return super().parse_args(ctx, list(self._without_groups(args, groups)))

    def _without_groups(
        self, args: Sequence[str], groups: list[tuple[str, list[str]]]
    ) -> list[str]:
        """Return the arguments that belong to no group."""
        with_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        left: list[str] = []
        rest = iter(args)
        for argument in rest:
            name, equals, value = argument.partition("=")
            if name == "--group":
                groups.append((value if equals else next(rest, ""), []))
                if not groups[-1][0] or groups[-1][0].startswith("-"):
                    raise UsageError("--group needs a name.", hint=_GROUPS)
            elif argument in with_value:
                following = next(rest, None)
                left += [argument] if following is None else [argument, following]
            elif argument.startswith("-") or not groups:
                left.append(argument)
            else:
                groups[-1][1].append(argument)
        return left


@click.command("compare", cls=_WithGroups)
@click.argument("runs", nargs=-1, shell_complete=RunName().shell_complete)
@click.option("--group", "unused", metavar="NAME RUN …", help="A group of runs; give two or more.")
@click.option(
    "--by", multiple=True, metavar="FACT", help="Make groups by a fact: git-commit, tag, name, …"
)
@click.option(
    "--expect",
    multiple=True,
    metavar="FACT",
    help="A fact that is meant to differ, or a section of settings: dask.array.slicing.",
)
@click.option("--exclude-spoiled", is_flag=True, help="Leave out spoiled runs.")
@click.option(
    "--fail-if",
    multiple=True,
    metavar="LIMIT",
    help="Exit with 1 if this is exceeded, with 3 if unclear, with 2 after an error: "
    "'makespan > 1.1'.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Also a page.")
@click.pass_context
def command(  # noqa: PLR0913, PLR0917
    ctx: click.Context,
    runs: tuple[str, ...],
    unused: str | None,  # noqa: ARG001  its values are in the context
    by: tuple[str, ...],
    expect: tuple[str, ...],
    exclude_spoiled: bool,  # noqa: FBT001
    fail_if: tuple[str, ...],
    form: str,
    report: Path | None,
) -> None:
    """Compare runs: are they alike, what is slower, and is that more than noise.

    Two runs are compared with each other. Three or more are one group, of which the spread is
    shown. A folder of runs stands for its runs.

    \b
    Examples:
      dask-strata compare runs/a runs/b
      dask-strata compare --group before runs/a1 runs/a2 --group after runs/b1 runs/b2
      dask-strata compare runs/ --by git-commit --exclude-spoiled
      dask-strata compare runs/ --by tag --fail-if 'makespan > 1.1' --format markdown
      dask-strata compare runs/a runs/b --expect array.slicing --report comparison.html
    """
    limits = [parse_limit(text) for text in fail_if]
    given: list[tuple[str, list[str]]] = ctx.obj
    if given and runs:
        raise UsageError(f"{runs[0]} is in no group.", hint=_GROUPS)
    if not given and not runs:
        raise UsageError("Name runs to compare, either plainly or in groups.", hint=_GROUPS)
    if len(by) > 1:
        raise UsageError("--by is given twice.", hint="Make groups by one fact.")
    groups = dict(given)
    if len(groups) < len(given):
        raise UsageError("Two groups have the same name.", hint="Give each --group its own name.")
    if groups and by:
        raise UsageError("--group and --by exclude each other.", hint="Omit one of them.")
    with _judging(fail_if), working("reading runs") as step:
        found = compare(
            *map(find_run, runs),
            groups={name: [*map(find_run, members)] for name, members in groups.items()} or None,
            by=by[0] if by else None,
            expect=expect,
            exclude_spoiled=exclude_spoiled,
            progress=step,
        )
    judged = found.judge(limits) if limits else ()
    print_comparison(found, judged, form)
    if report is not None:
        with _judging(fail_if):
            nbytes = write_comparison(found, judged, report)
        click.echo(f"{visible(str(report))}  {size(nbytes)}; open it in a browser", err=True)
    status = max((judgement.status for judgement in judged), key=_gravity, default=HOLDS)
    ctx.exit(status)


@contextmanager
def _judging(limits: Sequence[str]) -> Iterator[None]:
    """Let an error end with another status than a limit that is exceeded."""
    try:
        yield
    except StrataError as error:
        if not limits or isinstance(error, UsageError):
            raise
        raise NotJudgedError(error.message, hint=error.hint) from error


def _gravity(status: int) -> int:
    """Order statuses: a limit that is exceeded counts more than an unclear one."""
    return (0, 3, 1).index(status)


_GROUPS = "dask-strata compare --group before RUN RUN … --group after RUN RUN …"
