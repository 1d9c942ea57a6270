"""Processes that a test starts: each ends with the test."""

from __future__ import annotations

import subprocess
from typing import Any


def ends(process: subprocess.Popen[Any], seconds: float = 30) -> bool:
    """Wait for the end of a process, and kill it after some seconds; return whether it ended."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(seconds)
        return False
    return True


def terminate(process: subprocess.Popen[Any]) -> None:
    """Terminate a process, and kill it if it does not end."""
    if process.poll() is None:
        process.terminate()
        ends(process)
