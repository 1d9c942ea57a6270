"""Removing the source lines that tracebacks and warnings quote in texts."""

from __future__ import annotations

import re

from dask_strata.schema import LEFT_OUT

_FRAME = re.compile(r'(\s*)File "[^"\n]*", line \d+')
_QUOTED_CODE = re.compile(
    r'(File \\?"[^"\n]*", line \d+[^\n]{0,300}?)\\n(?: {4,}(?:(?!\\n).)*(?:\\n|$))+'
)
_WARNING = re.compile(r"\S.*:\d+: \w*Warning: ")

#: Pattern of RE2, Arrow's engine: each text of several lines with a quoted line matches it.
HINT = r'File \\?"|Warning: '


class QuotedCode:
    r"""Removes quoted source lines from the lines of one text or stream, in their order.

    Examples
    --------
    >>> QuotedCode().text('Error\n  File "x.py", line 1, in f\n    secret()\nValueError')
    'Error\n  File "x.py", line 1, in f\n    (left out)\nValueError'
    """

    def __init__(self) -> None:
        self._indent: int | None = None

    def text(self, text: str) -> str:
        """Return a text of any number of lines without quoted source lines."""
        return "\n".join(map(self.line, text.split("\n")))

    def line(self, line: str) -> str:
        """Return the next line, or a placeholder if it is a quoted source line."""
        frame = _FRAME.match(line)
        if frame is not None:
            self._indent = len(frame[1])
            return _QUOTED_CODE.sub(r"\1", line)
        if _WARNING.match(line):
            self._indent = 0
            return line
        indent = len(line) - len(line.lstrip())
        if self._indent is not None and indent > self._indent and line.strip():
            return f"{line[:indent]}{LEFT_OUT}"
        self._indent = None
        return _QUOTED_CODE.sub(r"\1", line)


def frames_only(text: str) -> str:
    r"""Return the lines of a traceback that name files and functions, without source lines.

    >>> frames_only('  File "x.py", line 1, in f\n    secret()\n')
    '  File "x.py", line 1, in f'
    """
    return "\n".join(line for line in text.splitlines() if line.startswith("  File "))
