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

_HINTS: dict[type[StrataError], str] = {
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
    """
    own = next((text for kind, text in _HINTS.items() if isinstance(error, kind)), None)
    if own is not None:
        return own
    return None if error.hint is None or _COMMAND.search(error.hint) else error.hint
