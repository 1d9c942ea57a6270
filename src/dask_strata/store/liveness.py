"""Identity of a process, so that a later reader can check whether it still runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def process_identity() -> dict[str, Any]:
    """Return the pid, the host name and the pid namespace of this process.

    Returns
    -------
    dict
        ``pid``, ``host`` and ``pids``. A reader whose own ``pids`` is equal was started on the
        same boot and in the same pid namespace, so that ``pid`` means the same process to it.
        ``pids`` is None where the system has no ``/proc``.

    Examples
    --------
    >>> sorted(process_identity())
    ['host', 'pid', 'pids']
    """
    facts: dict[str, Any] = {"pid": os.getpid(), "host": os.uname().nodename}
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        facts["pids"] = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, UnicodeDecodeError):
        facts["pids"] = None
    return facts
