"""The summary of a profile, on a terminal."""

from __future__ import annotations

from pathlib import PurePath

from rich.text import Text

from dask_strata.analysis.profile import ProfileSummary, TopFunction
from dask_strata.report.words import duration, percent, visible

#: Share below which owners are added up as others.
_SMALL = 0.01

#: Most owners and functions in the summary.
_SHARES = 6
_FUNCTIONS = 3


def profile_lines(profile: ProfileSummary) -> Text:
    """Return two lines: the owners of the code, and the functions, with most time.

    Parameters
    ----------
    profile : ProfileSummary
        Summary of the profile.
    """
    named = [s for s in profile.shares if s.share >= _SMALL][:_SHARES]
    parts = [f"{visible(s.owner)} {percent(s.share)}" for s in named]
    rest = 1 - sum(s.share for s in named)
    if profile.seconds and rest >= _SMALL:
        parts.append(f"others {percent(rest)}")
    clock = f"{visible(profile.clock)} clock" if profile.clock else "clock unknown"
    waiting = (
        f", {duration(profile.waiting_seconds)} of waiting left out"
        if profile.waiting_seconds
        else ""
    )
    processes = f"{profile.n_processes:,} process" + ("" if profile.n_processes == 1 else "es")
    return Text.assemble(
        ("profile  ", "bold"),
        f"{' · '.join(parts) or 'nothing ran'} of {duration(profile.seconds)} "
        f"({clock}, {processes}{waiting})",
        ("\n  most   ", "bold"),
        " · ".join(_function(f) for f in profile.top[:_FUNCTIONS]),
    )


def _function(function: TopFunction) -> str:
    kind = "async " if function.is_coroutine else ""
    file = visible(PurePath(function.module).name)
    line = "" if function.line is None else f":{function.line}"
    return f"{kind}{visible(function.name)} ({file}{line}) {duration(function.own_seconds)}"
