"""A real control group with a memory limit, of cgroup v1 or v2, where this machine permits it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Folders of groups, files of the limit and of the counter of OOM kills, of v1 and v2.
_VERSIONS = (
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
)


@dataclass(frozen=True)
class ControlGroup:
    """A control group.

    Attributes
    ----------
    folder : Path
        Its folder.
    counter : str
        The file with its counter of OOM kills.
    """

    folder: Path
    counter: str

    @property
    def command(self) -> tuple[str, ...]:
        """Words in front of a command that runs in the group."""
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh")

    @property
    def oom_kills(self) -> int:
        """Processes of the group that the kernel's OOM killer has ended."""
        lines = (self.folder / self.counter).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextlib.contextmanager
def limited_group(limit: int) -> Iterator[ControlGroup]:
    """Make a control group with a memory limit; skip the test, with the reason, if that fails.

    Parameters
    ----------
    limit : int
        The limit in bytes.
    """
    reasons = []
    for root, limits, counter in _VERSIONS:
        folder = Path(root) / f"strata-{secrets.token_hex(4)}"
        try:
            folder.mkdir()
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
            continue
        try:
            (folder / limits).write_text(str(limit))
            group = ControlGroup(folder, counter)
            assert group.oom_kills == 0
        except (OSError, StopIteration) as error:
            folder.rmdir()
            reasons.append(f"{folder / limits}: {error}")
            continue
        try:
            yield group
        finally:
            with contextlib.suppress(OSError):  # a process that still ends keeps it
                folder.rmdir()
        return
    pytest.skip(f"NOT TESTED: no control group with a memory limit here: {'; '.join(reasons)}")
