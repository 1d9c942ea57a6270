"""Every command and the page use one system of units, with 3 significant digits."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster, wait

import dask_strata
from dask_strata import open_run
from dask_strata.cli import cli
from dask_strata.cli.commands import VERBS
from tests.conftest import rows
from tests.support.shared_fixtures import shared_fixture
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

MIB = 2**20

VERSION_0_1 = Path(__file__).parents[1] / "data" / "version_0_1" / "segments"

SIZE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?) (bytes|[KMGTPE]iB|B)\b(?!/s)")
VALUE = re.compile(r"(?<![\w.,-])(\d+\.\d+) (?:ms|s|thread-seconds|kHz|[KMGTPE]?i?B(?:/s)?)\b")
OTHER_UNIT = re.compile(r"(?<![\w.,])[\d.,]+ ?(?:[kKMGTP][bB]|[kmgtp]ib|µs|us|sec)\b")
EXPONENT = re.compile(r"(?<![\w.-])\d(?:\.\d+)?e[+-]\d\d(?![\w-])")


def wrong(texts: dict[str, str]) -> dict[str, list[str]]:
    """Return the wrong numbers of each text that has any."""
    return {name: found for name, text in texts.items() if (found := wrong_numbers(text))}


def wrong_numbers(text: str) -> list[str]:
    """Return the numbers of a text that are not in our units, or have too many digits."""
    found = [m.group() for m in SIZE.finditer(text) if float(m[1].replace(",", "")) >= 1024]
    found += [
        m.group() for m in VALUE.finditer(text) if len(m[1].lstrip("0.").replace(".", "")) > 3
    ]
    return found + [m.group() for kind in (OTHER_UNIT, EXPONENT) for m in kind.finditer(text)]


def test_wrong_numbers_are_found() -> None:
    """The search finds each kind of number that must not be on a screen."""
    text = "5,000 bytes, 2,595 MiB, 1024 KiB, 3.1416 s, 12.34 ms, 5 MB, 1 kB, 2GB, 1.8688e-05"
    assert len(wrong_numbers(text)) == 9
    right = "1023 KiB, 2.5 GiB, 3.14 s, 0.0123 ms, 2 min 3 s, 3e-12ab, part-1e-05, 1,234 tasks"
    assert wrong_numbers(right) == []


def make_block(n: int) -> np.ndarray:
    """Return a block of some mebibytes."""
    return np.full(n * MIB + n, 1, "u1")


def add_up(block: np.ndarray, path: str) -> int:
    """Write a block, read it again, and return its sum."""
    block.tofile(path)
    return int(np.fromfile(path, "u1").sum())


def fail(_: Any) -> None:
    """Fail."""
    raise ValueError("no")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with transfers, spills, files and failures of many sizes."""
    folder = tmp_path_factory.mktemp("recorded")
    # A result beyond 40 MiB is written to disk; no worker is paused or ended.
    limits = {"target": 0.1, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": n for name, n in limits.items()}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="400 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        workers = list(client.nthreads())
        blocks = [
            client.submit(make_block, n, key=f"block-{n}", workers=[workers[0]], pure=False)
            for n in (1, 20, 90)
        ]
        wait(blocks)
        sums = [
            client.submit(
                add_up, block, str(folder / f"{n}.bin"), key=f"sum-{n}", workers=[workers[1]]
            )
            for n, block in enumerate(blocks)
        ]
        failed = client.submit(fail, sums[0], key="fail-0")
        wait([*sums, failed])
    return run.path


def invoke(*arguments: Any) -> str:
    """Return the output of a command on a wide terminal; it may have findings."""
    # Through a pipe, tables have exact values for other programs. rich takes this for a terminal.
    terminal = {"FORCE_COLOR": "1", "COLUMNS": "1000"}
    done = CliRunner(env=terminal).invoke(cli, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code in {0, 1}, done.output
    return done.output


def outputs(run: Path, key: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the output of each command that shows a run, and the text of its page."""
    copy = folder / "copy" / run.name
    shutil.copytree(run, copy)
    commands: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(
            ("show", "map", "tasks", "chunks", "io", "logs", "profile", "check", "jobs"), (run,)
        ),
        "list": (run.parent,),
        "tag": (copy, "fast"),
        "compare": (run, small_run(folder / "other")),
        "story": (run, key),
        "lineage": (run, key),
        "why": (run,),
        "query": (run, "select name, host from workers"),
        "tables": (),
        "compact": (copy,),
        "report": (run, "-o", folder / "page.html"),
        "export": (run, "--to", "perfetto", "-o", folder / "run.pftrace"),
    }
    # These show no run, or the pages of these, or rows as they are.
    others = {"record", "demo", "serve", "open", "import", "doctor", "fetch", "upload"}
    others |= {"follow", "stream"}
    assert commands.keys() | others == VERBS.keys()
    for name, arguments in commands.items():
        yield name, invoke(name, *arguments)
    page = (folder / "page.html").read_text(encoding="utf-8")
    page = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    yield "page", re.sub(r"<[^>]*>", " ", page)


def test_a_recorded_run(recorded: Path, tmp_path: Path) -> None:
    """No command, nor the page, shows a number in another unit, or with more digits."""
    spilled = rows(open_run(recorded), "select sum(nbytes)::bigint as n from spills")
    assert spilled[0]["n"] >= 90 * MIB
    texts = dict(outputs(recorded, "sum-2", tmp_path))
    assert wrong(texts) == {}
    assert "90 MiB" in texts["story"]
    assert "MiB" in texts["show"]
    assert "MiB/s" in texts["page"]


#: Folders of the coupler's files, and Darshan logs of the same run.
FILES = (
    ("ImageProcessing/D2024-04-18_15:54:03_R7_W8", "darshan_polaris/ImageProcessing_R7"),
    ("PMDA/D2024-04-19_19:01:00_R1_W8", "darshan_polaris/PMDA_R1"),
    ("XGBoost/D2024-04-19_17:14:53_R20_W8", None),
)


@pytest.mark.release
@pytest.mark.parametrize(("name", "logs"), FILES)
def test_an_imported_run(tmp_path: Path, name: str, logs: str | None) -> None:
    """The same holds for runs of others, with Darshan's logs."""
    texts = {"import": invoke("import", shared_fixture(name), "-o", tmp_path / "runs")}
    [run] = (tmp_path / "runs").iterdir()
    if logs:
        texts["import logs"] = invoke("import", "--into", run, shared_fixture(logs))
    [largest] = rows(open_run(run), "select key from tasks order by nbytes desc nulls last limit 1")
    texts |= outputs(run, largest["key"], tmp_path)
    assert wrong(texts) == {}


@pytest.mark.release
def test_a_run_of_version_0_1(tmp_path: Path) -> None:
    """The same holds for a run that an early version recorded."""
    run = Path(shutil.copytree(VERSION_0_1, tmp_path / "runs" / "old"))
    [first] = rows(open_run(run), "select key from tasks order by key limit 1")
    texts = dict(outputs(run, first["key"], tmp_path))
    assert wrong(texts) == {}
