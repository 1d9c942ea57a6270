"""Play a recorded run again: its segments grow by frames, in parts that a test chooses."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from dask_strata.run import Run
from dask_strata.run.derived import STORED
from dask_strata.schema import DERIVED, TABLES
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.segments.decode import unpack
from dask_strata.store.segments.frames import FRAME_OVERHEAD, Encoder, payloads
from tests.support.finalised import internal, plain


class Replay:
    """A copy of a run whose segments have their first frames only.

    The headers have no process ids, so that its processes count as alive.
    """

    def __init__(self, run: Path, copy: Path) -> None:
        self.folder = copy
        self._frames: dict[str, list[bytes]] = {}
        self._written: dict[str, int] = {}
        self._torn: dict[str, int] = {}
        copy.mkdir()
        shutil.copy(run / "run.json", copy)
        (copy / SEGMENTS).mkdir()
        for path in sorted((run / SEGMENTS).glob(f"*{SUFFIX}")):
            data, at, frames = path.read_bytes(), 0, []
            for payload in payloads(data):
                assert isinstance(payload, bytes)
                frames.append(data[at : at + len(payload) + FRAME_OVERHEAD])
                at += len(frames[-1])
            header = {k: v for k, v in unpack(next(iter(payloads(data)))).items() if k != "pid"}
            frames[0] = Encoder(path.stem, header).header()
            self._frames[path.name] = frames
            self._written[path.name] = 0

    def grow(self, share: float, random: random.Random, jitter: float = 0.2) -> None:
        """Append frames until each segment has about this share of them; 1 for all."""
        for name, frames in self._frames.items():
            if share < 1:
                share_here = min(1.0, max(0.0, share + random.uniform(-jitter, jitter)))
            else:
                share_here = 1
            until = max(2, self._written[name], round(share_here * len(frames)))
            new = b"".join(frames[self._written[name] : until])
            torn = self._torn.get(name, 0)
            if not new and torn:
                continue
            with (self.folder / SEGMENTS / name).open("ab") as file:
                file.write(new[torn:])
            self._written[name], self._torn[name] = until, 0

    def tear(self, random: random.Random) -> None:
        """Append a part of the next frame of each segment, as a process that is writing it."""
        for name, frames in self._frames.items():
            if self._written[name] < len(frames) and not self._torn.get(name):
                frame = frames[self._written[name]]
                self._torn[name] = random.randrange(len(frame))
                with (self.folder / SEGMENTS / name).open("ab") as file:
                    file.write(frame[: self._torn[name]])


#: Internal tables that a growing run keeps, too.
INTERNAL = sorted(STORED - DERIVED.keys())


def contents(run: Run) -> dict[str, list[str]]:
    """Return the rows of all tables."""
    found = {name: plain(run[name].to_arrow()) for name in TABLES}
    found |= {name: internal(run, name) for name in INTERNAL}
    # Derived tables have columns beside the public ones, which other tables use.
    found |= {f"{name}, all columns": internal(run, name) for name in sorted(DERIVED)}
    return found


def differences(now: dict[str, list[str]], then: dict[str, list[str]]) -> list[str]:
    """Return the tables whose rows differ, each as a sentence."""
    return [
        f"{name} has other rows: {sorted(set(now[name]) ^ set(then[name]))[:4]}"
        for name in now
        if now[name] != then[name]
    ]
