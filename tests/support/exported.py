"""What exports contain, whatever their format."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq


def files_of(path: Path) -> dict[str, bytes]:
    """Return the contents of a file, or of all files in a folder, by name."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def fingerprint(path: Path) -> str:
    """Return a hash of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    for name, data in files_of(path).items():
        digest.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        digest.update(data)
    return digest.hexdigest()


def texts_of(path: Path) -> str:
    """Return everything that an export says, uncompressed, as one text."""
    if path.suffix == ".duckdb":
        return _of_database(path)
    return "\n".join(_text(name, data) for name, data in files_of(path).items())


def _text(name: str, data: bytes) -> str:
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(data))
        return f"{name} {file.schema_arrow.metadata} {_rows(file.read())}"
    if data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return "\n".join(_text(each, archive.read(each)) for each in archive.namelist())
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompress(data, wbits=31)
    return f"{name} {data.decode('utf-8', 'replace')}"


def _rows(table: Any) -> str:
    # Python's own datetimes have no nanoseconds.
    rows = table.to_pandas().to_dict("records") if _has_times(table) else table.to_pylist()
    return "\n".join(map(str, rows))


def _has_times(table: Any) -> bool:
    """Return whether a table has a column of times."""
    return any("timestamp" in str(field.type) for field in table.schema)


def _of_database(path: Path) -> str:
    with duckdb.connect(str(path), read_only=True) as database:
        names = database.execute("select table_name from duckdb_tables() order by 1").fetchall()
        return "\n".join(f"{name} {database.table(name).fetchall()}" for (name,) in names)
