"""Errors that are meant for the user.

::

    StrataError                 exit 1, a problem with the data or the environment
    ├── NotARunError            the path is not a run, or contains nothing readable
    ├── NewerRunError           the run was written by a newer dask-strata
    ├── UnknownTaskError        no recorded task has that key
    ├── UnknownWorkerError      no recorded worker of that name ended
    ├── QueryError              the SQL is invalid or not allowed
    │   └── InterruptedQueryError   the query was interrupted, by Ctrl-C or a time limit
    ├── RecordingError          recording could not be started or stopped
    ├── ImportedDataError       files of other tools cannot be imported
    ├── BrokerError             a broker of a stream is away, or refuses; a later try may succeed
    ├── MessageError            a message of a stream cannot be parsed
    └── UsageError              exit 2, the call itself is wrong
        └── SettingError        a setting is unknown or has an invalid value

Each error is one sentence that describes the problem and its location, with a ``hint`` at the
remedy. Only the command line turns errors into an exit status.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class StrataError(Exception):
    """A problem that is reported to the user in one or two lines.

    Parameters
    ----------
    message : str
        The problem and its location.
    hint : str, optional
        The remedy.

    Examples
    --------
    >>> print(StrataError("No such folder: nope", hint="List runs with: dask-strata list"))
    No such folder: nope
    List runs with: dask-strata list
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NotARunError(StrataError):
    """The path is not the folder of a run, or contains no readable record."""


class NewerRunError(StrataError):
    """The run was written in a format that this version cannot read."""


class UnfinishedRunError(StrataError):
    """The run is still being recorded."""


class UnknownTaskError(StrataError):
    """No recorded task has the given key, or several have it."""


class UnknownWorkerError(StrataError):
    """No recorded worker of the given name, address, process or process id ended."""


class QueryError(StrataError):
    """The SQL is invalid, or does something that a query may not do."""


class InterruptedQueryError(QueryError):
    """The query was interrupted: by Ctrl-C, or by its time limit."""


class UncomputableError(StrataError):
    """Values in the record cannot be computed with: a sum overflows, for example."""


class RecordingError(StrataError):
    """Recording could not be started or stopped."""


class ImportedDataError(StrataError):
    """Files of other tools cannot be imported."""


class BrokerError(StrataError):
    """A broker of a stream cannot be reached or refuses; a later try may succeed."""


class MessageError(StrataError):
    """A message of a stream is not in the format of dask-strata."""


class UsageError(StrataError):
    """The call itself is wrong."""

    exit_code = 2


class NothingToCompareError(StrataError):
    """A run has no values that can be compared, or no run of a group is left."""


class NotJudgedError(StrataError):
    """Runs could not be compared, so that it is not known whether they exceed a limit."""

    exit_code = 2


class SettingError(UsageError):
    """A setting is unknown, or its value cannot be used."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint at the most similar name that exists; empty if none is similar.

    Parameters
    ----------
    name : str
        The name that does not exist.
    known : iterable of str
        The names that exist.

    Examples
    --------
    >>> suggestion("compute_secs", ["compute_seconds", "key"]), suggestion("x", ["key"])
    ('Did you mean compute_seconds? ', '')
    """
    import difflib  # only errors need it; workers import this module

    names = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), names, n=1)
    return f"Did you mean {names[close[0]]}? " if close else ""
