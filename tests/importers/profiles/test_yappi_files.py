"""Profiles that Yappi and Python saved are read, or refused with the reason."""

from __future__ import annotations

import contextlib
import cProfile
import marshal
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yappi
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.errors import ImportedDataError
from dask_strata.importers.profiles.callgrind import CallgrindError, read_callgrind
from dask_strata.importers.profiles.importer import add_profiles
from dask_strata.importers.profiles.yappi_files import is_profile, read_profile
from dask_strata.importers.registry import add_files
from dask_strata.importers.results import ImportTarget
from dask_strata.schema import TABLES
from dask_strata.store.bulk_writer import Addition
from dask_strata.store.reader import read_record
from tests.support.synthetic import small_run

NAMES = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029\x85"),
    min_size=1,
    max_size=20,
).filter(lambda text: text.strip() == text)
FUNCTIONS = st.lists(
    st.tuples(NAMES, NAMES, st.integers(0, 10**6), st.integers(0, 10**12)), min_size=1, max_size=12
)


def entry(number: int, name: str, module: str, line: int, ticks: int) -> yappi.YFuncStat:
    """Return a statistic as Yappi keeps it."""
    seconds = ticks / 1e6
    children = yappi.YChildFuncStats()
    values = (name, module, line, 1, 1, False, seconds, seconds, number, children, 0, "", 0, None)
    return yappi.YFuncStat((*values, seconds, f"{module}:{line} {name}"))


@given(FUNCTIONS)
def test_yappis_callgrind_files_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, functions: list[tuple[str, str, int, int]]
) -> None:
    """Names, files, lines and times of any functions are the same after Yappi's own writer."""
    stats = yappi.YFuncStats()
    for number, function in enumerate(functions, 1):
        stats.append(entry(number, *function))
    path = tmp_path_factory.mktemp("profile") / "it.callgrind"
    stats.save(str(path), "callgrind")
    expected = sorted((s.name, s.module, s.lineno, int(s.tsub * 1e6)) for s in stats)
    found = sorted((f.name, f.file, f.line, round(f.own * 1e6)) for f in read_callgrind(path))
    assert found == expected


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """The reader of callgrind files raises no other exception than CallgrindError."""
    path = tmp_path_factory.mktemp("bytes") / "it.callgrind"
    path.write_bytes(b"version: 1\ncreator: yappi\nevents: Ticks\n" + content)
    with contextlib.suppress(CallgrindError):
        assert isinstance(read_callgrind(path), list)


CALLGRIND = """version: 1
creator: yappi
pid: 1
cmd:  a.py
part: 1

events: Ticks

fl=(1) /home/me/a.py
fl=(2) /v/lib/python3.11/site-packages/numpy/x.py
fn=(1) main /home/me/a.py:3
fn=(2) svd /v/lib/python3.11/site-packages/numpy/x.py:7

fl=(1)
fn=(1)
3 1500000
cfl=(2)
cfn=(2)
calls=4 0
0 500000

fl=(2)
fn=(2)
7 500000"""


def test_a_callgrind_file_has_times_calls_and_owners(tmp_path: Path) -> None:
    """Own time, time with callees, calls if callers are known, and the owner of the code."""
    path = tmp_path / "profile.callgrind"
    path.write_text(CALLGRIND)
    assert is_profile(path)
    main, svd = read_profile(path)
    assert (main["own_seconds"], main["total_seconds"], main["ncall"]) == (1.5, 2.0, None)
    assert (svd["own_seconds"], svd["ncall"], svd["package"]) == (0.5, 4, "numpy")
    assert (main["owner"], main["line"], main["file"]) == ("user", 3, str(path))
    assert set(main) <= {column.name for column in TABLES["functions"].columns}


@pytest.mark.parametrize("length", range(130, len(CALLGRIND) - 1, 7))
def test_a_cut_callgrind_file_is_whole_rows_or_a_reason(tmp_path: Path, length: int) -> None:
    """A file cut anywhere yields its complete rows or an error, and no invented rows."""
    path = tmp_path / "profile.callgrind"
    path.write_text(CALLGRIND[:length])
    whole = {("main", 3, 1.5), ("svd", 7, 0.5)}
    with contextlib.suppress(ImportedDataError):
        found = {(row["name"], row["line"], row["own_seconds"]) for row in read_profile(path)}
        # A file that is cut within its last number looks complete.
        assert {f for f in found if f[0] == "main"} <= whole or length < CALLGRIND.index("cfl")
        assert {f[:2] for f in found} <= {f[:2] for f in whole}


def test_a_pstat_file_of_python_is_read(tmp_path: Path) -> None:
    """A file of cProfile is read in a process of its own; recursive calls are counted apart."""

    def again(n: int) -> int:
        return n and again(n - 1)

    profiler = cProfile.Profile()
    profiler.runcall(again, 4)
    path = tmp_path / "profile.prof"
    profiler.dump_stats(path)
    assert is_profile(path)
    row = next(r for r in read_profile(path) if r["name"] == "again" or "again" in r["name"])
    assert (row["ncall"], row["nactualcall"]) == (5, 1)
    assert row["module"] == __file__
    renamed = path.rename(tmp_path / "nameless")
    assert is_profile(renamed)


HOSTILE = {
    "empty": b"",
    "text": b"not a profile at all",
    "cut": marshal.dumps({("a.py", 1, "f"): (1, 1, 0.5, 0.5, {})})[:-9],
    "deep": b"(\x01\x00\x00\x00" * 5000,
    "list": marshal.dumps([1, 2, 3]),
    "bad keys": marshal.dumps({"a": (1, 1, 0.5, 0.5, {})}),
    "bad names": marshal.dumps({(b"a", 1, "f"): (1, 1, 0.5, 0.5, {})}),
    "bad numbers": marshal.dumps({("a", 1, "f"): (-1, 2**70, 0.5, 0.5, {})}),
    "not a number": marshal.dumps({("a", 1, "f"): (1, 1, float("nan"), 0.5, {})}),
    "code": marshal.dumps(compile("print('ran')", "x", "exec")),
    "huge": b"\xfb\xa9\x03[\xff\xff\xff\x7f" + b"N" * 50,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_pstat_file_is_refused_with_a_reason(tmp_path: Path, kind: str) -> None:
    """Empty, cut, foreign and hostile marshal data cannot hurt this process, and is named."""
    path = tmp_path / "profile.pstat"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(ImportedDataError, match=r"profile\.pstat is"):
        read_profile(path)


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    """Yappi's own format is a pickle: it is refused, and nothing in it runs."""

    class Hostile:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    path = tmp_path / "profile.ystat"
    path.write_bytes(pickle.dumps(Hostile()))
    assert is_profile(path)
    with pytest.raises(ImportedDataError, match="is a pickle"):
        read_profile(path)
    assert not (tmp_path / "ran").exists()


def test_other_files_are_no_profiles(tmp_path: Path) -> None:
    """JSON, folders, missing files and Valgrind's files are not mistaken for Yappi's files."""
    for name, text in (("a.json", '{"a": 1}'), ("b.txt", ""), ("c", "{0")):
        (tmp_path / name).write_text(text)
    assert not is_profile(tmp_path / "a.json")
    assert not is_profile(tmp_path / "b.txt")
    assert not is_profile(tmp_path)
    assert not is_profile(tmp_path / "missing.pstat")
    with pytest.raises(ImportedDataError, match="cannot be read: No such file"):
        read_profile(tmp_path / "missing.pstat")
    valgrind = tmp_path / "callgrind.out.42"
    valgrind.write_text("version: 1\ncreator: callgrind-3.19.0\nevents: Ir\n\nfl=(1) a.c\n")
    assert is_profile(valgrind)
    with pytest.raises(ImportedDataError, match=r"not written by Yappi, but by callgrind-3\.19\.0"):
        read_profile(valgrind)


def shared_name(characters: int, functions: int) -> bytes:
    """Return a pstat file whose functions share one long file name, which it contains once.

    Marshal writes a repeated object as a reference to its first occurrence.
    """
    long = "n" * characters
    return marshal.dumps({(long, n, "f"): (1, 1, 0.5, 0.5, {}) for n in range(functions)})


def test_names_of_a_profile_are_cut(tmp_path: Path) -> None:
    """A name is cut after 512 characters in either format; its function is kept."""
    path = tmp_path / "profile.pstat"
    path.write_bytes(shared_name(5000, 3))
    assert [len(row["module"]) for row in read_profile(path)] == [512] * 3
    path = tmp_path / "profile.callgrind"
    path.write_text(CALLGRIND.replace("/home/me/a.py", "n" * 5000))
    assert next(len(row["module"]) for row in read_profile(path)) == 512


@pytest.mark.parametrize(
    ("setting", "limit", "message"),
    [("_MOST_WRITTEN", 20_000, "20,000 bytes"), ("MOST_FUNCTIONS", 99, "99 functions")],
)
def test_a_profile_cannot_take_more_memory_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, limit: int, message: str
) -> None:
    """A small file with a large output is refused, and the error contains the limit."""
    monkeypatch.setattr(f"dask_strata.importers.profiles.yappi_files.{setting}", limit)
    path = tmp_path / "profile.pstat"
    path.write_bytes(shared_name(5000, 100))
    assert path.stat().st_size < 20_000
    with pytest.raises(ImportedDataError, match=f"is too large for a profile: .* {message}"):
        read_profile(path)


def test_a_callgrind_file_is_read_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large a file, a line without an end and too many functions are refused."""
    path = tmp_path / "profile.callgrind"
    with path.open("w") as file:
        file.write(CALLGRIND)
        file.truncate(200 * 2**20)  # the file is sparse after the text
    with pytest.raises(ImportedDataError, match=r"line 24 has more than 65,536 characters"):
        read_profile(path)
    with path.open("r+") as file:
        file.truncate(300 * 2**20)
    with pytest.raises(ImportedDataError, match="too large for a profile"):
        read_profile(path)
    path.write_text(CALLGRIND)
    monkeypatch.setattr("dask_strata.importers.profiles.callgrind.MOST_FUNCTIONS", 1)
    with pytest.raises(ImportedDataError, match="more than 1 f"):
        read_profile(path)


LIMITED = """
import resource, sys
from pathlib import Path
from dask_strata.importers.profiles.yappi_files import read_profile
for limit, most in ((resource.RLIMIT_AS, 2**30 * 3 // 2), (resource.RLIMIT_CPU, 30)):
    resource.setrlimit(limit, (most, most))
print(len(read_profile(Path(sys.argv[1]))))
"""


def test_lower_limits_are_kept(tmp_path: Path) -> None:
    """A profile is read under `ulimit -v` and under a batch system's limit of CPU time, too."""
    path = tmp_path / "profile.pstat"
    path.write_bytes(shared_name(10, 3))
    command = [sys.executable, "-c", LIMITED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("3\n", "")


def added_to(run: Path, *files: Path) -> Any:
    """Add profiles to a run, as `import --into` does."""
    addition = Addition(run)
    added = add_profiles(
        files, ImportTarget(addition, read_record(run), "importer-1", lambda *_: None)
    )
    addition.finish()
    return added


def test_progress_is_in_bytes(tmp_path: Path) -> None:
    """Progress ends at the sum of the sizes, as it does for other files."""
    run = small_run(tmp_path / "run")
    (tmp_path / "good.callgrind").write_text(CALLGRIND)
    calls: list[tuple[int, int]] = []
    add_files(run, [tmp_path / "good.callgrind"], lambda *done: calls.append(done))
    assert calls[-1] == (len(CALLGRIND), len(CALLGRIND))


def test_a_refused_profile_is_refused_again(tmp_path: Path) -> None:
    """A refused file is not in the run: another import refuses it again."""
    run = small_run(tmp_path / "run")
    good, bad, large = (tmp_path / f"{name}.callgrind" for name in ("good", "bad", "large"))
    good.write_text(CALLGRIND)
    bad.write_text("not a profile")
    with large.open("wb") as file:
        file.truncate(2**40)  # its digest would take hours
    for again in (0, 1, 1):
        added = added_to(run, good, bad, bad, large)
        assert (added.files, added.already_imported, len(added.problems)) == (1 - again, again, 3)
        assert "too large for a profile" in added.problems[-1]
