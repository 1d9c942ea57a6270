"""Bundles that may come from anyone: what is no bundle is refused, and leaves no file behind."""

from __future__ import annotations

import gc
import os
import stat
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dask_strata
from dask_strata.analysis.list import list_run
from dask_strata.errors import NotARunError, StrataError
from dask_strata.store import limits
from dask_strata.store.zipped import directory
from tests.support.bundles import copies, members_of, small_bundle, zip_of

pytestmark = pytest.mark.long

Members = list[tuple[zipfile.ZipInfo | str, bytes]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a bundle as it should be."""
    return small_bundle(tmp_path_factory.mktemp("bundle")).read_bytes()


@contextmanager
def temporary_files(folder: Path) -> Iterator[Path]:
    """Have temporary files in a folder."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before


def refusal(folder: Path, data: bytes) -> str:
    """Return why a bundle is refused, by `open_run`; nothing of it may be left."""
    path = folder / "hostile.strata.zip"
    path.write_bytes(data)
    (folder / "temporary").mkdir(exist_ok=True)
    with temporary_files(folder / "temporary") as temporary:
        with pytest.raises(NotARunError) as refused:
            dask_strata.open_run(path)
        assert list_run(path)["run"] == path.name
        gc.collect()
        assert list(temporary.iterdir()) == []
    assert sorted(p.name for p in folder.iterdir()) == ["hostile.strata.zip", "temporary"]
    return refused.value.message


def info(name: str, mode: int = 0o100600, **fields: int) -> zipfile.ZipInfo:
    """Return the head of a member."""
    made = zipfile.ZipInfo("x")
    made.filename = name  # unchanged: the constructor would replace backslashes
    made.create_system = 3
    made.external_attr = mode << 16
    for field, value in fields.items():
        setattr(made, field, value)
    return made


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../outside", "not the name of a file"),
        ("parquet/../../outside", "not the name of a file"),
        ("/etc/outside", "not the name of a file"),
        ("parquet//x", "not the name of a file"),
        ("./run", "not the name of a file"),
        ("parquet\\..\\outside", "not the name of a file"),
        ("C:outside", "not the name of a file"),
        ("parquet/.hidden", "not the name of a file"),
        ("parquet/" * 7 + "x", "not the name of a file"),
        ("parquet/" + "x" * 300, "not the name of a file"),
        ("parquet/a\nb", "not the name of a file"),
        ("parquet/\u202e", "not the name of a file"),
        ("run.json/x", "is a file and a folder"),
        ("run.json", "two members"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_lead_elsewhere(name: str, reason: str, bundle: bytes, tmp_path: Path) -> None:
    """Out of the folder on this system or another one, hidden, too long, or there twice."""
    members: Members = [*members_of(bundle).items(), (info(name), b"x")]
    assert reason in refusal(tmp_path, zip_of(members))


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (stat.S_IFLNK | 0o777, "a symbolic link"),
        (stat.S_IFIFO | 0o600, "not a plain file"),
        (stat.S_IFCHR | 0o600, "not a plain file"),
        (stat.S_IFDIR | 0o700, "not a plain file"),
    ],
)
def test_members_that_are_no_files(mode: int, reason: str, bundle: bytes, tmp_path: Path) -> None:
    """Links, pipes, devices, and folders with content."""
    members: Members = [*members_of(bundle).items(), (info("parquet/x", mode), b"/etc/passwd")]
    assert reason in refusal(tmp_path, zip_of(members))


def test_compressed_members(bundle: bytes, tmp_path: Path) -> None:
    """A bomb costs nothing, because no compressed member is read."""
    members: Members = [*members_of(bundle).items(), ("parquet/bomb", bytes(100 << 20))]
    data = zip_of(members, compression=zipfile.ZIP_DEFLATED)
    assert len(data) < 1 << 20
    assert "compressed" in refusal(tmp_path, data)


def test_encrypted_members(bundle: bytes, tmp_path: Path) -> None:
    """By the flag in the directory."""
    at = bundle.index(b"PK\x01\x02")
    assert "encrypted" in refusal(tmp_path, patched(bundle, at + 8, b"\x01"))


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Return data with other bytes at a position."""
    return data[:at] + new + data[at + len(new) :]


def entry_of(bundle: bytes, name: str) -> int:
    """Return the position of an entry of the directory."""
    at = bundle.index(b"PK\x01\x02")
    while bundle[at + 46 : at + 46 + len(name)] != name.encode():
        at = bundle.index(b"PK\x01\x02", at + 4)
    return at


def test_members_that_share_bytes(bundle: bytes, tmp_path: Path) -> None:
    """Two names for the same bytes, as in bombs without compression, and sizes beyond the next."""
    at = entry_of(bundle, "parquet/index.json")
    [size] = struct.unpack_from("<L", bundle, at + 24)
    for grown in (size + 1, size + 100_000, 0xFFFFFFFE):
        data = patched(bundle, at + 20, struct.pack("<2L", grown, grown))
        assert "damaged" in refusal(tmp_path, data)
    other = entry_of(bundle, "run.json")
    data = patched(bundle, at + 42, bundle[other + 42 : other + 46])
    assert "damaged" in refusal(tmp_path, data)


def test_sizes_and_checksums(bundle: bytes, tmp_path: Path) -> None:
    """Of the directory, the member's own head, and its bytes."""
    at = entry_of(bundle, "parquet/index.json")
    [header] = struct.unpack_from("<L", bundle, at + 42)
    for place in (at + 16, at + 20, at + 24, header + 14, header + 18, header + 22, header + 30):
        assert "damaged" in refusal(tmp_path, patched(bundle, place, b"\xee"))
    first = header + 30 + len("parquet/index.json")
    assert "checksum" in refusal(tmp_path, patched(bundle, first + 10, b"\x00"))


def test_what_is_no_zip_file(bundle: bytes, tmp_path: Path) -> None:
    """Empty files, texts, parts of a bundle, and bundles with bytes before or after."""
    for data in (b"", b"PK", b"hello" * 100, bytes(1000)):
        assert "not a zip file" in refusal(tmp_path, data)
    assert "not a zip file" in refusal(tmp_path, b"MZ" + bundle)
    for size in (len(bundle) - 1, len(bundle) // 2, 30):
        assert "damaged or incomplete" in refusal(tmp_path, bundle[:size])
    assert "damaged or incomplete" in refusal(tmp_path, bundle + b"x")
    assert "it has no run.json" in refusal(tmp_path, zip_of([]))
    assert "it has no run.json" in refusal(tmp_path, zip_of([("x", b"")]))


def test_directories_that_are_too_large(bundle: bytes, tmp_path: Path) -> None:
    """A number of members, and a size, that no run has are refused before any entry is read."""
    end = len(bundle) - 22
    fields = list(struct.unpack_from("<4s4H2LH", bundle, end))
    for place, value in ((3, 65_000), (4, 65_000), (5, 1 << 30), (6, 1 << 30)):
        changed = [*fields]
        changed[place] = value
        assert "it" in refusal(tmp_path, bundle[:end] + struct.pack("<4s4H2LH", *changed))
    many: Members = [(f"parquet/{n}", b"") for n in range(limits.ZIP_MEMBERS)]
    began = time.process_time()
    reason = refusal(tmp_path, zip_of([("run.json", b"{}"), *many]))
    assert f"more than {limits.ZIP_MEMBERS:,} members" in reason
    assert time.process_time() - began < 60


@pytest.mark.release
def test_many_members_in_64_bits(bundle: bytes, tmp_path: Path) -> None:
    """More members than 16 bits can count are read; the fields for 64 bits have to be right."""
    many: Members = [(f"parquet/{n}", b"") for n in range(66_000)]
    data = zip_of([*members_of(bundle).items(), *many])
    path = tmp_path / "wide.strata.zip"
    path.write_bytes(data)
    assert len(read(path)) > 66_000
    began = time.process_time()
    assert list_run(path)["problem"] is None
    assert time.process_time() - began < 60
    end = data.rindex(b"PK\x06\x06")
    ignored = {12, 13, 14, 15}  # versions of the format
    for place in range(len(data) - end):
        if place not in ignored:
            path.write_bytes(patched(data, end + place, bytes([data[end + place] ^ 0x55])))
            with pytest.raises(OSError, match=r"damaged|part of|more than|not a zip"):
                read(path)


def read(path: Path) -> dict[str, directory.Member]:
    """Read the directory of a zip file."""
    with path.open("rb") as file:
        return directory.read_directory(file)


def test_a_file_of_holes(bundle: bytes, tmp_path: Path) -> None:
    """A file whose members are holes would fill the disk: it takes far less than its copy."""
    path = tmp_path / "holes.strata.zip"
    size = 3 << 30
    with path.open("wb") as file:
        file.write(bundle[: bundle.index(b"PK\x01\x02")])
        head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, size, size, 9, 0)
        start = file.tell()
        file.write(head + b"parquet/x")
        file.seek(size, os.SEEK_CUR)
        here = file.tell()
        entries = bundle[bundle.index(b"PK\x01\x02") : -22] + struct.pack(
            "<4s6H3L5H2L",
            b"PK\x01\x02",
            20,
            20,
            0,
            0,
            0,
            33,
            0,
            size,
            size,
            9,
            0,
            0,
            0,
            0,
            0,
            start,
        )
        entries += b"parquet/x"
        count = entries.count(b"PK\x01\x02")
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), here, 0)
        file.write(entries + end)
    with temporary_files(tmp_path), pytest.raises(NotARunError, match="holes"):
        dask_strata.open_run(path)
    assert [p.name for p in tmp_path.iterdir()] == ["holes.strata.zip"]


def test_places_that_are_no_files(tmp_path: Path) -> None:
    """A pipe does not block; a link in a folder of runs is not followed."""
    os.mkfifo(tmp_path / "pipe.strata.zip")
    (tmp_path / "link.strata.zip").symlink_to("/etc/passwd")
    with pytest.raises(NotARunError):
        dask_strata.open_run(tmp_path / "pipe.strata.zip")
    with pytest.raises(NotARunError, match="not a zip file"):
        dask_strata.open_run(tmp_path / "link.strata.zip")
    from dask_strata.analysis.list import list_rows

    assert list_rows(tmp_path) == []


def test_a_disk_that_is_full(
    bundle: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the place and the remedy, before anything is copied."""
    path = tmp_path / "x.strata.zip"
    path.write_bytes(bundle)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10_000}))
    with temporary_files(tmp_path / "temporary"):
        with pytest.raises(StrataError, match="copied") as error:
            dask_strata.open_run(path)
        assert "TMPDIR" in str(error.value)
    assert list((tmp_path / "temporary").iterdir()) == []


def flipped(data: bytes, places: list[tuple[float, int]]) -> bytes:
    """Return data with some bytes changed."""
    changed = bytearray(data)
    for place, value in places:
        changed[int(place * (len(data) - 1))] ^= value
    return bytes(changed)


def head_changed(data: bytes, places: list[tuple[float, int]]) -> bytes:
    """Return data with some bytes of its directory and its last local head changed."""
    start = data.rindex(b"PK\x03\x04")
    return data[:start] + flipped(data[start:], places)


def with_right_checksums(data: bytes, places: list[tuple[float, int]]) -> bytes:
    """Return a bundle whose files are changed, with the checksums of a zip file that is intact."""
    members: Members = []
    for name, content in members_of(data).items():
        hit = [(place, value) for place, value in places if zlib.crc32(name.encode()) % 7 < 3]
        members.append((name, flipped(content, hit) if content else content))
    return zip_of(members)


PLACES = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=8)
MEANS: list[Callable[[bytes, list[tuple[float, int]]], bytes]] = [
    flipped,
    head_changed,
    with_right_checksums,
    lambda data, places: data[: int(places[0][0] * len(data))],
    lambda data, places: data + bytes(value for _, value in places),
    lambda data, places: zip_of(
        [
            item
            for item in members_of(data).items()
            if zlib.crc32(item[0].encode()) % 255 != places[0][1]
        ]
    ),
]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(means=st.sampled_from(MEANS), places=PLACES)
def test_any_damage_is_a_sentence(
    means: Callable[[bytes, list[tuple[float, int]]], bytes],
    places: list[tuple[float, int]],
    bundle: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever was changed, a bundle is read or refused, and leaves nothing behind."""
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "damaged.strata.zip"
    path.write_bytes(means(bundle, places))
    (folder / "temporary").mkdir()
    with temporary_files(folder / "temporary") as temporary:
        read_whole(path)
        gc.collect()
        assert copies(temporary) == []
    assert sorted(p.name for p in folder.iterdir()) == ["damaged.strata.zip", "temporary"]


def read_whole(path: Path) -> None:
    """List a bundle, open it and read its tasks; an error is one that users understand."""
    row = list_run(path)
    assert row["run"] == path.name
    with suppress(StrataError):
        run = dask_strata.open_run(path)
        run.check()
        run.rows("select * from tasks")
