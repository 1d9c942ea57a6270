"""Tracebacks of fatal signals leave the handlers of other runtimes alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SETUP = """
import ctypes, faulthandler, signal
from dask_strata.recorder.logs.fatal_signals import Tracebacks, _handlers

libc = ctypes.CDLL(None)
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
default = _handlers()
"""

#: A handler of a runtime such as Java's, installed before and after ours; and none.
_CASES = {
    "before": """
libc.signal(signal.SIGSEGV, handler)
others = _handlers()
tracebacks = Tracebacks(2)
assert not faulthandler.is_enabled() and _handlers() == others != default
tracebacks.end()
assert _handlers() == others
""",
    "after": """
tracebacks = Tracebacks(2)
assert faulthandler.is_enabled()
libc.signal(signal.SIGSEGV, handler)
others = _handlers()
tracebacks.end()
assert _handlers() == others
""",
    "none": """
tracebacks = Tracebacks(2)
assert faulthandler.is_enabled() and _handlers() != default
tracebacks.end()
assert not faulthandler.is_enabled() and _handlers() == default
""",
}


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="handlers are unknown")
@pytest.mark.parametrize("case", list(_CASES))
def test_handlers_of_others_stay(case: str) -> None:
    """`faulthandler` is on only where nobody handles the signals, and off only if it still does."""
    done = subprocess.run(
        [sys.executable, "-c", _SETUP + _CASES[case]], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
