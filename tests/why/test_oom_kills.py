"""The kernel's counter of OOM kills, in trees of files as cgroup v1 and v2 have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata.config import read_settings
from dask_strata.recorder.environment.host_view import HostView
from dask_strata.recorder.environment.oom_kills import OomKills
from dask_strata.recorder.pipeline.anonymize import with_secret
from dask_strata.store.segments.replacing import Replacing

PID = 7


class Host:
    """A tree with the role of /proc and /sys, with one process in a control group."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        (self.proc / str(PID)).mkdir(parents=True)
        self.view = HostView({}, self.proc, self.sys)

    def put(self, lines: str) -> None:
        """Put the process into groups, by the lines of /proc/PID/cgroup."""
        (self.proc / str(PID) / "cgroup").write_text(lines)

    def group(self, path: str, **files: str) -> None:
        """Write files of a group."""
        folder = self.sys / "fs" / "cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".", 1)).write_text(text)

    def watch(self) -> OomKills:
        """Return the counter of the process."""
        return OomKills(PID, self.view)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host without groups, where nothing was killed yet."""
    made = Host(tmp_path)
    (made.proc / "vmstat").write_text("nr_free_pages 5\noom_kill 3\n")
    return made


def events(n: int) -> str:
    """Return the text of memory.events."""
    return f"low 0\nhigh 0\nmax 9\noom 1\noom_kill {n}\noom_group_kill 0\n"


def test_a_group_of_v2(host: Host) -> None:
    """The counter rose between the last looks and the end; limit and largest use are named."""
    host.put("0::/job/step\n")
    host.group("job/step", memory__events=events(4), memory__max="1000", memory__peak="999")
    watched = host.watch()
    for _ in range(9):
        watched.look()
    unchanged = watched.evidence()
    assert unchanged is not None
    assert not unchanged.risen
    host.group("job/step", memory__events=events(5))
    found = watched.evidence()
    assert found is not None
    assert found.risen
    assert found.text == (
        "oom_kill of control group /job/step rose from 4 to 5, memory.max 1000, memory.peak 999"
    )
    hidden = Replacing(with_secret(read_settings(leave_out="paths"))).text(found.text)
    assert "job" not in hidden
    assert "rose from 4 to 5" in hidden


def test_a_rise_long_before_is_of_another_process(host: Host) -> None:
    """What was killed many looks ago is no evidence; a look while the process ends is."""
    host.put("4:memory:/job\n0::/\n")
    state = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    host.group("memory/job", memory__oom_control=state.format(0))
    watched = host.watch()
    host.group("memory/job", memory__oom_control=state.format(1))
    watched.look()
    found = watched.evidence()
    assert found is not None
    assert found.risen
    for _ in range(5):
        watched.look()
    found = watched.evidence()
    assert found is not None
    assert not found.risen


def test_a_process_that_ends_is_shown_in_the_root_group(host: Host) -> None:
    """Its own group counts; a move to another group is followed."""
    state = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    for name, n in (("a", 0), ("b", 2)):
        host.group(f"memory/{name}", memory__oom_control=state.format(n))
    host.group("memory", memory__oom_control=state.format(0))
    host.put("4:memory:/a\n0::/\n")
    watched = host.watch()
    host.put("4:memory:/b\n0::/\n")
    watched.look()
    host.group("memory/b", memory__oom_control=state.format(3))
    host.put("4:memory:/\n0::/\n")
    watched.look()
    found = watched.evidence()
    assert found is not None
    assert found.text == "oom_kill of control group /b rose from 2 to 3"


def test_without_a_group_the_machine_counts(host: Host) -> None:
    """The counter of the machine is the evidence; without it, nothing is."""
    host.put("0::/\n")
    watched = host.watch()
    (host.proc / "vmstat").write_text("oom_kill 4\n")
    found = watched.evidence()
    assert found is not None
    assert found.text == f"oom_kill of {host.proc / 'vmstat'} rose from 3 to 4"
    (host.proc / "vmstat").unlink()
    assert watched.evidence() is None
