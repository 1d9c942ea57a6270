"""How a run ended, in one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Outcomes, and their meanings.
OUTCOMES = {
    "finished": "the recording ended, and the script did not fail, if `dask-strata record` ran it",
    "failed": "the script ended with an error",
    "cancelled": "Ctrl-C or SIGTERM ended the script",
    "cut off": "the recording was killed",
    "recording": "the recording is running",
    "imported": "made of records of other tools",
}

#: Statuses of a script that Ctrl-C or SIGTERM ended, as a shell reports them.
_CANCELLED = frozenset({130, 143})

_OF_STATE = {"complete": "finished", "cut": "cut off"}


def outcome_of(state: str, exit_status: int | None) -> str:
    """Return the outcome of a run.

    Parameters
    ----------
    state : str
        State of its record: complete, cut, recording or imported.
    exit_status : int or None
        Status of its script; None if that is unknown.

    Examples
    --------
    >>> outcome_of("complete", 3), outcome_of("complete", None), outcome_of("cut", None)
    ('failed', 'finished', 'cut off')
    """
    if exit_status and state != "recording":
        return "cancelled" if exit_status in _CANCELLED else "failed"
    return _OF_STATE.get(state, state)


def exit_status_of(run: Run) -> int | None:
    """Return the script's exit status; None unless `dask-strata record` ran the script."""
    status = run.script.get("exit_status", "")
    return int(status) if status.isdecimal() else None
