"""`dask-strata compare`, `dask_strata.compare` and the page, with recorded runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dask_strata
from dask_strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.long

Strata = Callable[..., subprocess.CompletedProcess[str]]

#: Ten tasks that sleep on one of two threads; the argument is the time of each.
SCRIPT = """
    import sys, time
    from dask.distributed import Client, LocalCluster

    def work(i, seconds):
        time.sleep(seconds)
        return i

    def collect(values):
        return sum(values)

    if __name__ == "__main__":
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            done = client.map(work, range(10), seconds=float(sys.argv[1]), pure=False)
            print(client.submit(collect, done).result())
"""

BEFORE, AFTER = 0.1, 0.3


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of each kind, with their tags."""
    folder = tmp_path_factory.mktemp("compare")
    script = folder / "work.py"
    script.write_text(textwrap.dedent(SCRIPT))
    for seconds, tag in ((BEFORE, "before"), (AFTER, "after")):
        for _ in range(2):
            command = [sys.executable, "-m", "dask_strata", "record", "-q", "--tag", tag]
            command += ["--tag", "size=small", "-o", folder / "runs", script, str(seconds)]
            subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return folder / "runs"


@pytest.fixture
def folders(recorded: Path) -> dict[str, list[Path]]:
    runs = sorted(recorded.iterdir())
    return {"before": runs[:2], "after": runs[2:]}


def test_two_runs(strata: Strata, folders: dict[str, list[Path]]) -> None:
    """The task's own sleep is the difference: five tasks one after the other on each thread."""
    shown = strata("compare", folders["before"][0], folders["after"][0], check=True).stdout
    text = " ".join(shown.split())
    assert f"A ({folders['before'][0].name}), B ({folders['after'][0].name})" in text
    assert "Not alike: arguments 0.1 → 0.3." in text
    assert "B takes" in text
    assert "longer than A" in text
    assert "waiting for a free worker thread behind `work`" in text
    assert "With one run a side, noise is not known." in text
    facts = json.loads(
        strata(
            *("compare", folders["before"][0], folders["after"][0], "--format", "json"), check=True
        ).stdout
    )
    [verdict] = facts["verdicts"]
    assert verdict["difference_seconds"] == pytest.approx(5 * (AFTER - BEFORE), abs=0.35)
    [compute] = [e for e in facts["effects"] if (e["measure"], e["name"]) == ("compute", "work")]
    assert compute["difference"] == pytest.approx(10 * (AFTER - BEFORE), rel=0.1)
    assert sum(p["difference_seconds"] for p in facts["parts"]) == pytest.approx(
        verdict["difference_seconds"], abs=1e-6
    )
    assert not facts["fair"]


def test_groups(strata: Strata, folders: dict[str, list[Path]], tmp_path: Path) -> None:
    named = ["--group", "before", *folders["before"], "--group=after", *folders["after"]]
    page = tmp_path / "page.html"
    arguments = ["--expect", "arguments", "--fail-if", "makespan > 1.1", "--report", page]
    done = strata("compare", *named, *arguments)
    assert done.returncode == 3
    text = " ".join(done.stdout.split())
    assert "before (2 runs), after (2 runs)" in text
    assert "Fair: nothing on record differs that was not declared" in text
    assert "That is outside the spread seen; 2 and 2 runs are too few for a test" in text
    assert "makespan > 1.1: unclear." in text
    assert "significant" not in text
    html = page.read_text()
    assert "after against before" in html
    assert "<script" not in html
    assert html.count("<ellipse") >= 4
    told = strata("compare", *named, "--expect", "arguments", "--fail-if", "makespan > 9")
    assert told.returncode == 0


def test_groups_by_tag_of_a_folder(strata: Strata, recorded: Path) -> None:
    shown = strata("compare", recorded, "--by", "tag", "--format", "markdown")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("Not alike: arguments 0.1 → 0.3.\n")
    assert "**tag after takes" in shown.stdout
    assert "| measure | tag before \\(2 runs\\) | tag after \\(2 runs\\) |" in shown.stdout
    assert "|---|---:|" in shown.stdout
    failed = strata("compare", recorded, "--by", "tag.size")
    assert failed.returncode == 2
    assert "All runs have the same tag.size: small." in failed.stderr
    unknown = strata("compare", recorded, "--by", "colour")
    assert unknown.returncode == 2
    assert "No run has the fact colour." in unknown.stderr
    assert "tag, tag.size" in unknown.stderr


def test_one_group(strata: Strata, recorded: Path) -> None:
    text = " ".join(strata("compare", recorded, check=True).stdout.split())
    assert "runs (4 runs)" in text
    assert "4 runs, makespan" in text
    assert "slowest" in text
    shown = strata("compare", recorded, "--format", "markdown", check=True).stdout
    assert "| measure | least | median | most | middle half |" in shown
    assert "slowest" in shown
    assert "order alike" in text


def test_errors(strata: Strata, folders: dict[str, list[Path]], tmp_path: Path) -> None:
    one, other = folders["before"]
    twice = tmp_path / "copy"
    shutil.copytree(one, twice)
    cases: list[tuple[list[object], int, str]] = [
        ([], 2, "Name runs to compare"),
        ([one], 2, "One run cannot be compared."),
        ([one, twice], 2, "is given twice"),
        ([one, tmp_path / "missing"], 1, "missing"),
        ([one, other, "--expect", "no.such"], 2, "No run has the fact no.such."),
        ([one, other, "--fail-if", "fast"], 2, "'fast' is no limit."),
        (["--group", "a", one, "--group", "a", other], 2, "same name"),
        (["--group", "a", one, "--group", "b"], 2, "The group b has no run."),
        (["--group", "a", one, "--by", "tag"], 2, "exclude each other"),
        (["--group", "a", one], 2, "One run cannot be compared."),
        (["--group"], 2, "--group needs a name."),
        (["--group=", one], 2, "--group needs a name."),
        (["--group", "--format", "json", one], 2, "--group needs a name."),
        (["--by", "", one, other], 2, "No run has the fact ."),
        ([one, "x" * 5_000], 1, "Error: "),
        ([one, other, "--fail-if", "cause trasnfer > 1.1"], 2, "There is no cause trasnfer."),
        ([one, Path(__file__).parent], 1, "not a run"),
        ([one, tmp_path / "missing", "--fail-if", "makespan > 1.1"], 2, "missing"),
        ([one, other, "--by", "tag", "--by", "name"], 2, "--by is given twice."),
        ([one, "--group", "b", other], 2, "is in no group."),
        ([one, other, "--report", tmp_path / "no" / "page.html"], 1, "cannot be written"),
    ]
    for arguments, status, words in cases:
        done = strata("compare", *arguments)
        assert (done.returncode, words in done.stderr) == (status, True), (arguments, done.stderr)
        assert "Traceback" not in done.stderr


def test_a_run_that_is_being_recorded(
    strata: Strata, folders: dict[str, list[Path]], client: Client, runs: Path
) -> None:
    with dask_strata.record(runs, client=client):
        client.submit(abs, 1).result()
        [run] = runs.iterdir()
        done = strata("compare", run, folders["after"][0])
    assert done.returncode == 1
    assert "is still being recorded" in done.stderr


def test_python(
    folders: dict[str, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dask_strata.compare(folders["before"], folders["after"], expect=["arguments"])
    assert found.fairness.is_fair
    assert "B takes" in str(found)
    assert "<table" in found._repr_html_()
    effects = found.to_pandas()
    work = effects[(effects["measure"] == "compute") & (effects["name"] == "work")].iloc[0]
    assert work["ratio"] == pytest.approx(AFTER / BEFORE, rel=0.1)
    assert work["verdict"] == "outside the spread"
    assert found.to_arrow("parts").num_rows
    with pytest.raises(UsageError, match="has no table colours"):
        found.to_arrow("colours")
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "pandas", None)  # as if it were not installed
        with pytest.raises(StrataError, match="needs pandas"):
            found.to_pandas()
    with pytest.raises(AttributeError):
        found.groups = ()  # type: ignore[misc]
    named = dask_strata.compare(groups=folders)
    assert [group.name for group in named.groups] == ["before", "after"]
    folder = str(folders["before"][0].parent)
    assert [len(group.runs) for group in dask_strata.compare(folder, by="tag").groups] == [2, 2]
    assert dask_strata.compare(iter(folders["before"]), folders["after"], expect="arguments")
    assert found.judge("makespan > 9")[0].status == 0
    assert repr(found) == "<Comparison A: 2 runs, B: 2 runs>"
    runs = [dask_strata.open_run(path) for path in folders["before"]]
    assert "B takes" in str(dask_strata.compare(*runs))
    assert found.report(tmp_path / "page.html").stat().st_size > 10_000
    for arguments in (
        (),
        (folders["before"][0],),
        (folders["before"][:1],),
        (folders["before"], folders["after"][0]),
        (None, 3),
        ([b"x"], [b"y"]),
    ):
        with pytest.raises(UsageError):
            dask_strata.compare(*arguments)
    with pytest.raises(UsageError):
        dask_strata.compare(folders["before"], by="tag")


@pytest.mark.release
def test_facts_that_were_left_out_are_no_difference(
    strata: Strata, folders: dict[str, list[Path]], tmp_path: Path
) -> None:
    """Such a run has a stored summary, and unknown facts."""
    script = folders["before"][0].parents[1] / "work.py"
    for i in range(2):
        strata("record", "-q", "--no-hosts", "-o", tmp_path / f"{i}", script, BEFORE, check=True)
    runs = [next((tmp_path / f"{i}").iterdir()) for i in range(2)]
    assert all((run / "parquet" / "summary.json").exists() for run in runs)
    done = strata("compare", *runs, "--format", "json", check=True)
    assert json.loads(done.stdout)["fair"], done.stdout


def test_a_spoiled_run_is_named(
    strata: Strata, folders: dict[str, list[Path]], tmp_path: Path
) -> None:
    script = tmp_path / "fails.py"
    text = textwrap.dedent(SCRIPT).replace("return sum(values)", "raise ValueError(values)")
    script.write_text(text)
    strata("record", "-q", "-o", tmp_path / "spoiled", script, BEFORE)
    [spoiled] = (tmp_path / "spoiled").iterdir()
    groups = ["--group", "a", *folders["before"], "--group", "b", *folders["after"], spoiled]
    shown = " ".join(strata("compare", *groups, check=True).stdout.split())
    assert f"spoiled: {spoiled.name}: it failed; 1 task failed" in shown
    for form in ("text", "markdown"):
        done = strata("compare", *groups, "--exclude-spoiled", "--format", form, check=True)
        shown = " ".join(done.stdout.split())
        assert "1 spoiled run left out." in shown
        assert f"spoiled, left out: {spoiled.name}: it failed; 1 task failed" in shown


def test_a_run_of_a_newer_version(
    strata: Strata, folders: dict[str, list[Path]], tmp_path: Path
) -> None:
    one, other = folders["before"]
    newer = tmp_path / "newer"
    shutil.copytree(one, newer)
    manifest = json.loads((newer / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps({**manifest, "format": manifest["format"] + 1}))
    done = strata("compare", newer, other)
    assert done.returncode == 1
    assert "newer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.release
def test_four_runs_a_side_are_tested(strata: Strata, tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(textwrap.dedent(SCRIPT))
    for seconds, tag in ((BEFORE, "before"), (AFTER, "after")):
        for _ in range(4):
            strata("record", "-q", "--tag", tag, script, seconds, check=True)
    done = strata("compare", "runs", "--by", "tag", "--fail-if", "prefix work compute > 1.2")
    assert done.returncode == 1, done.stdout
    text = " ".join(done.stdout.split())
    assert "That is more than noise" in text
    assert "prefix work compute > 1.2: exceeded." in text
    held = strata("compare", "runs", "--by", "tag", "--fail-if", "prefix collect tasks > 1.2")
    assert held.returncode == 0, held.stdout
