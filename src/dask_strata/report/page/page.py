"""The page of a run: one HTML file that needs no network.

The page shows the answers of the command line. All data of the run are shown as text: the
template escapes them, the script sets text only, and the content security policy allows only
the page's own script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.chunks.chunks import summarize_chunks
from dask_strata.analysis.critical_path.walk import CriticalPath, critical_path
from dask_strata.analysis.idleness import IdleWorker, idle_workers
from dask_strata.analysis.map import STEPS, metadata_map
from dask_strata.analysis.measured.memory import memory_lines
from dask_strata.analysis.overview.stuck import stuck_of
from dask_strata.analysis.series.thread_states import thread_states
from dask_strata.analysis.stacks import flame_graphs
from dask_strata.analysis.story import Story, story
from dask_strata.analysis.summary import Summary, summarize
from dask_strata.analysis.timeline import traffic
from dask_strata.analysis.timeline.resources import resources
from dask_strata.analysis.timeline.series import series
from dask_strata.analysis.timeline.stragglers import stragglers
from dask_strata.analysis.timeline.timeline import timeline
from dask_strata.errors import StrataError, UnknownTaskError
from dask_strata.report.page.charts import charts
from dask_strata.report.page.data import Limits, intervals_of, page_data
from dask_strata.report.page.log import log_lines
from dask_strata.report.page.names import worker_names
from dask_strata.report.page.resources import resource_data
from dask_strata.report.page.templates import asset, environment
from dask_strata.report.terminal.stuck import heading
from dask_strata.report.words import count, visible

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Scripts of the page; each uses only those before it.
SCRIPTS = (
    "codec.js",
    "model.js",
    "numbers.js",
    "drawing.js",
    "events.js",
    "strips.js",
    "resources.js",
    "timeline.js",
    "task.js",
    "links.js",
    "svg_context.js",
    "pictures.js",
    "csv.js",
    "shapes.js",
    "durations.js",
    "heat_map.js",
    "layers.js",
    "graph.js",
    "charts.js",
    "main.js",
)

#: Most failed tasks, one for each kind of failure, with their story in the page.
_STORIES = 5

#: Parts of the template that are written at a time.
_PIECES = 500

#: Longest segments of the critical path in the page.
_SEGMENTS = 20

#: The first graphs with the code that submitted them: a notebook's cell, Dask's lines, or a line.
_SUBMISSIONS = """
    select s.*, g.cell, coalesce(g.cell_code, s.code, g.code) as written
    from submissions s left join graphs g using (submission) order by s.time limit 50
"""


@dataclass(frozen=True)
class Options:
    """Options of a page.

    Attributes
    ----------
    limits : Limits
        Numbers of attempts above which the page leaves something out.
    home : str or None
        Address of the list of runs, for pages from the server; None without a link to it.
    """

    limits: Limits = field(default_factory=Limits)
    home: str | None = None


def make_page(run: Run, options: Options | None = None) -> str:
    """Return the page of a run as HTML.

    Parameters
    ----------
    run : Run
        The run.
    options : Options, optional
        Options of the page.
    """
    return "".join(_pieces(run, options or Options()))


def _pieces(run: Run, options: Options) -> Iterator[str]:
    """Yield the page in pieces, after all answers were computed."""
    path = critical_path(run)
    states = thread_states(run)
    summary = summarize(run, path, states)
    answers = _answers(run, summary, path, idle_workers(run, states))
    del states
    limits = options.limits
    edges = summary.n_tasks <= limits.edges
    drawn = timeline(run, edges=edges, files=limits.files, keys=limits.keys)
    n_attempts = len(drawn.bars)
    data = page_data(drawn, path, series(run, drawn.origin, drawn.span), limits)
    answers["intervals"] = partial(intervals_of, origin=drawn.origin)
    answers["log"] = log_lines(run, drawn.origin, drawn.span)
    answers["worker_names"] = names = worker_names(run)
    answers |= charts(run, drawn, names)
    answers["resources"] = used = resource_data(resources(run, drawn))
    data.facts["resources"] = used.facts
    del drawn
    stream = (
        environment()
        .get_template("page.html.j2")
        .stream(
            **answers,
            data=data,
            n_attempts=n_attempts,
            stuck_heading=heading,
            home=options.home,
            script=_script(),
            style=_style(),
            script_hash=_hash(_script()),
            style_hash=_hash(_style()),
        )
    )
    stream.enable_buffering(_PIECES)
    yield from stream


def write_page(run: Run, target: Path) -> int:
    """Write the page of a run to a file.

    Parameters
    ----------
    run : Run
        The run.
    target : Path
        The file.

    Returns
    -------
    int
        Size of the file in bytes.

    Raises
    ------
    StrataError
        The file cannot be written.
    """
    pieces = page_pieces(run)
    first = next(pieces)  # computes all answers: an error leaves the file as it is
    try:
        with target.open("wb") as file:
            file.write(first)
            file.writelines(pieces)
        return target.stat().st_size
    except OSError as error:
        raise StrataError(f"{target} cannot be written: {error.strerror or error}.") from None


def page_pieces(run: Run) -> Iterator[bytes]:
    """Yield the page of a run in pieces, the first one after all answers were computed.

    Parameters
    ----------
    run : Run
        The run.
    """
    for piece in _pieces(run, Options()):
        # Names that are not valid Unicode are written as escapes.
        yield piece.encode("utf-8", "backslashreplace")


def story_html(run: Run, key: Any, key_type: str | None = None) -> str:
    """Return the story of one task as a fragment of HTML.

    Parameters
    ----------
    run : Run
        The run.
    key : str or any key of Dask
        The key, or the text that Dask shows for it.
    key_type : str, optional
        Name of the key's type, for a text that two keys share.

    Raises
    ------
    UnknownTaskError
        No task, or more than one, has this key.
    """
    task = run.task(key, key_type)
    return environment().get_template("story.html.j2").render(story=story(task))


def _answers(
    run: Run, summary: Summary, path: CriticalPath, idle: tuple[IdleWorker, ...]
) -> dict[str, Any]:
    """Return the content of the sections, from the functions that the command line uses."""
    map_ = metadata_map(run)
    has_chunks = any(cell.rows.get("chunks") for cell in map_)
    return {
        "s": summary,
        "stuck": stuck_of(run, summary.outcome),
        "path": path,
        "longest": sorted(path.segments, key=lambda p: p.start - p.stop)[:_SEGMENTS],
        "late": stragglers(run),
        "flames": flame_graphs(run),
        "idle": idle,
        "memory_lines": memory_lines(run),
        "files": traffic.files(run),
        "pairs": traffic.pairs(run),
        "shuffled": traffic.shuffled(run),
        "spilled": traffic.spilled(run),
        "departures": traffic.departures(run),
        "stories": tuple(_stories(run, summary, path)),
        "chunks": summarize_chunks(run) if has_chunks else None,
        "map": map_,
        "steps": STEPS,
        "config_differences": run["config_differences"].to_arrow().to_pylist(),
        "package_mismatches": run["package_mismatches"].to_arrow().to_pylist(),
        "versions": _versions(run),
        "job": _job(run),
        "code": run.script,
        "submissions": run.rows(_SUBMISSIONS),
        "outcome": outcome(summary),
        "command": shlex.quote(visible(summary.path)),
    }


def _stories(run: Run, summary: Summary, path: CriticalPath) -> Iterator[Story]:
    """Yield the stories of failed tasks and of the longest task on the critical path."""
    longest = max(path.segments, key=lambda p: p.stop - p.start, default=None)
    keys: list[tuple[str, str | None]] = [
        (failure.example, None) for failure in summary.failures[:_STORIES]
    ]
    if longest is not None and longest.key is not None:
        keys.append((longest.key, longest.key_type))
    for key, key_type in keys:
        with suppress(UnknownTaskError):  # two keys may have the same text
            yield story(run.task(key, key_type))


def outcome(s: Summary) -> tuple[str, str]:
    """Return the outcome of a run, as a class of the style sheet and as a sentence.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    """
    if s.exit_status:
        how = "was interrupted" if s.outcome == "cancelled" else "failed"
        return "bad", f"The script {how} (status {s.exit_status})."
    if s.n_erred:
        return "bad", f"{count(s.n_erred, 'task')} failed."
    if s.state == "cut":
        return "bad", "The recording was killed."
    if s.state == "recording":
        return "open", "The recording is running."
    if not s.n_tasks:
        return "open", "No task is on record."
    if s.n_erred is None:
        return "open", "The ends of tasks are not on record."
    if s.n_unfinished:
        return "open", f"{count(s.n_unfinished, 'task')} never finished."
    return "good", "All tasks succeeded." if s.n_tasks > 1 else "The task succeeded."


def _job(run: Run) -> list[dict[str, Any]]:
    """Return the facts of the job; equal facts of several processes are one row."""
    return run.rows("""
        select name, value, count(*) as n,
            string_agg(distinct process, ', ' order by process) as processes
        from job group by name, value order by name, n desc, value limit 500
    """)


def _versions(run: Run) -> list[dict[str, Any]]:
    return run.rows("""
        select distinct name, version from packages
        where name in ('dask', 'distributed', 'numpy', 'pandas', 'dask-strata', 'pyarrow', 'coffea')
        union all select distinct 'python', python from processes where python is not null
        order by 1
    """)


@cache
def _script() -> str:
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@cache
def _style() -> str:
    return asset("page.css")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
