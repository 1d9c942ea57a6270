"""Everything that can go wrong and be said to a user.

::

    StrataError                 exit 1, a problem with the data or the surroundings
    ├── NotARunError            the path is no run, or has nothing readable in it
    ├── NewerRunError           the run was written by a newer dask-strata
    ├── UnknownTaskError        no task of that key is on record
    ├── QueryError              the SQL is wrong or asks for what is not allowed
    │   └── InterruptedQueryError   the query was interrupted, by Ctrl-C or a time limit
    ├── RecordingError          recording could not be started
    ├── ImportedDataError       files that others wrote cannot be imported
    └── UsageError              exit 2, the call itself is wrong
        └── SettingError        a setting is unknown or has a bad value

Each error is one sentence that says what is wrong and where, and a ``hint`` that says
what to do about it. Nothing but the command line turns them into an exit status.
"""

from __future__ import annotations

from typing import ClassVar


class StrataError(Exception):
    """A problem that is told to the user in one or two lines.

    Parameters
    ----------
    message : str
        What is wrong, and where.
    hint : str, optional
        What to do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NotARunError(StrataError):
    """The path is no run folder, or holds no record that can be read."""


class NewerRunError(StrataError):
    """The run was written in a format that this version does not know."""


class UnknownTaskError(StrataError):
    """No task with the given key is on record."""


class QueryError(StrataError):
    """The SQL is wrong, or asks for what a query may not do."""


class InterruptedQueryError(QueryError):
    """The query was interrupted: by Ctrl-C, or because its time was up."""


class RecordingError(StrataError):
    """Recording could not be started or stopped."""


class ImportedDataError(StrataError):
    """Files that others wrote cannot be imported."""


class UsageError(StrataError):
    """The call itself is wrong."""

    exit_code = 2


class SettingError(UsageError):
    """A setting is unknown, or its value cannot be used."""
