"""Texts of log entries for the record: without secrets, and without code if that is left out."""

from __future__ import annotations

from dask_strata.recorder.pipeline.redact import REDACTED, redact_text
from dask_strata.store.segments.quoted_code import QuotedCode

_BEGIN, _END = "-----BEGIN ", "-----END "


class TextFilter:
    r"""Filters the lines of one text or stream, in their order.

    Parameters
    ----------
    code : bool
        Whether source lines, which tracebacks and warnings quote, are recorded.

    Examples
    --------
    >>> TextFilter(code=False).text('Error\n  File "x.py", line 1, in f\n    secret()\nValueError')
    'Error\n  File "x.py", line 1, in f\n    (left out)\nValueError'
    """

    def __init__(self, *, code: bool) -> None:
        self._quoted = None if code else QuotedCode()
        self._in_key = False

    def text(self, text: str) -> str:
        """Return a text of any number of lines, filtered."""
        return "\n".join(self.lines(text.split("\n")))

    def lines(self, lines: list[str]) -> list[str]:
        """Return as many lines, filtered."""
        joined = "\n".join(lines)
        clean = lines if self._in_key or _BEGIN in joined else redact_text(joined).split("\n")
        # A secret that spans lines has fewer of them when it is redacted.
        if clean is lines or len(clean) != len(lines):
            clean = [self._line(line) for line in lines]
        return clean if self._quoted is None else [self._quoted.line(line) for line in clean]

    def _line(self, line: str) -> str:
        if self._in_key:
            self._in_key = _END not in line
            return REDACTED
        if _BEGIN in line and "PRIVATE KEY" in line:
            self._in_key = _END not in line
            return REDACTED
        return redact_text(line)
