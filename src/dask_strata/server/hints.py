"""What to do about an error, for somebody with a browser instead of a terminal."""

from __future__ import annotations

import re

from dask_strata.errors import (
    NewerRunError,
    NotARunError,
    NothingToCompareError,
    StrataError,
    UnfinishedRunError,
    UnknownTaskError,
)

#: Texts that name a command or an option, which nobody can type into a browser.
_COMMAND = re.compile(r"dask-strata|(?<!\w)--\w|(?<!\w)-[a-z] |pip install")

#: Advice in place of a command.
_INSTEAD: dict[type[StrataError], str] = {
    NotARunError: "It may have been moved or removed. The list has all runs of this folder.",
    NewerRunError: "Whoever runs this server has to upgrade dask-strata.",
    UnknownTaskError: "Search the table of tasks for a part of the key.",
    UnfinishedRunError: "Wait for its end: its page updates itself.",
    NothingToCompareError: "Tick other runs in the list, or include spoiled runs.",
}


def browser_hint(error: StrataError) -> str | None:
    """Return the advice of an error that can be followed in a browser; None without any.

    Parameters
    ----------
    error : StrataError
        The error.

    Examples
    --------
    >>> browser_hint(StrataError("No such run.", hint="List them: dask-strata list"))
    >>> browser_hint(StrataError("Busy.", hint="Try again."))
    'Try again.'
    >>> browser_hint(NewerRunError("Too new.", hint="Upgrade: pip install -U dask-strata"))
    'Whoever runs this server has to upgrade dask-strata.'
    """
    if error.hint is None or not _COMMAND.search(error.hint):
        return error.hint
    return next((text for kind, text in _INSTEAD.items() if isinstance(error, kind)), None)
