"""`summary.json` in the Parquet folder of a run: answers that were computed once.

The file is valid JSON with one part on each line, so that a list of runs parses the line that it
needs. It is untrusted: a file that is not as this version wrote it for the present files of the
run counts as absent, and the answers are computed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask_strata.config import VERSION
from dask_strata.store.limits import SUMMARY_BYTES
from dask_strata.store.manifest import INDEX, MANIFEST, PARQUET
from dask_strata.store.safe_files import RefusedError, replace_inside
from dask_strata.store.summaries.files import SUMMARY, RunFiles

#: Version of the format. Another version of dask-strata may compute other answers, so that its
#: number counts as well.
_FORMAT = 3

#: Files whose checksums are always compared: they decide about the meaning of the others.
_ALWAYS = (MANIFEST, f"{PARQUET}/{INDEX}")

#: Errors of a file that is not a summary.
_ERRORS = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True)
class StoredSummary:
    """The parts of a summary, as JSON that is not parsed yet."""

    lines: Mapping[str, bytes]

    def part(self, name: str) -> Any:
        """Return a part.

        Raises
        ------
        KeyError
            There is no such part.
        ValueError, RecursionError
            It is not valid JSON, or nests too deeply.
        """
        return json.loads(self.lines[name])


def checksums(files: RunFiles) -> dict[str, int]:
    """Return the CRC-32 of each file that answers depend on.

    Raises
    ------
    OSError
        A file cannot be read, or changed since the files were listed.
    """
    return {name: files.checksum(name) for name in files.files}


def write_summary(files: RunFiles, crcs: Mapping[str, int], parts: Mapping[str, Any]) -> None:
    """Write the summary of a run, all or nothing.

    Parameters
    ----------
    files : RunFiles
        The files that the parts were computed from.
    crcs : mapping of str to int
        Their checksums.
    parts : mapping of str to object
        The parts, as values that JSON can represent.

    Raises
    ------
    RefusedError
        The summary exceeds the limit of a reader.
    OSError
        The folder cannot be written.
    """
    replace_inside(files.folder, PARQUET, SUMMARY, data=summary_bytes(files, crcs, parts))


def summary_bytes(files: RunFiles, crcs: Mapping[str, int], parts: Mapping[str, Any]) -> bytes:
    """Return the content of the summary of a run, see `write_summary`.

    Raises
    ------
    RefusedError
        The summary exceeds the limit of a reader.
    """
    head = {
        "format": _FORMAT,
        "version": VERSION,
        "folders": sorted(files.folders),
        "files": {name: [*state, crcs[name]] for name, state in sorted(files.files.items())},
    }
    lines = [
        f"{json.dumps(name)}: {_dumps(part)}" for name, part in {"head": head, **parts}.items()
    ]
    rest = (",\n".join(lines) + "\n}\n").encode()
    data = b'{"crc32": %d,\n' % zlib.crc32(rest) + rest
    if len(data) > SUMMARY_BYTES:
        raise RefusedError(f"{SUMMARY} would have more than {SUMMARY_BYTES:,} bytes")
    return data


def _dumps(part: Any) -> str:
    return json.dumps(part, separators=(",", ":"), allow_nan=False)


def read_summary(files: RunFiles, *, verify: bool) -> StoredSummary | None:
    """Return the summary of a run; None if there is none for its present files.

    Parameters
    ----------
    files : RunFiles
        The present files of the run.
    verify : bool
        Compare the checksums of all files. Otherwise only those of the manifest, of the index,
        and of files with another time than when the summary was written: sizes always have to be
        the same.
    """
    if not files.regular:
        return None
    try:
        data = files.read(f"{PARQUET}/{SUMMARY}", SUMMARY_BYTES)
        first, _, rest = data.partition(b"\n")
        if first != b'{"crc32": %d,' % zlib.crc32(rest):
            return None
        lines = dict(_line(line) for line in rest.removesuffix(b"\n}\n").split(b",\n"))
        is_valid = _belongs(json.loads(lines.pop("head")), files, verify=verify)
    except _ERRORS:
        return None
    return StoredSummary(lines) if is_valid else None


def _line(line: bytes) -> tuple[str, bytes]:
    name, _, part = line.partition(b": ")
    return json.loads(name), part


def _belongs(head: Any, files: RunFiles, *, verify: bool) -> bool:
    """Return whether the head of a summary is of this version, and describes these files."""
    recorded = head["files"]
    if (
        (head["format"], head["version"]) != (_FORMAT, VERSION)
        or recorded.keys() != files.files.keys()
        or head["folders"] != sorted(files.folders)
    ):
        return False
    compared = set(_ALWAYS)
    for name, state in files.files.items():
        size, modified_ns, _ = recorded[name]
        if size != state.size:
            return False
        if verify or modified_ns != state.modified_ns:
            compared.add(name)
    return all(recorded[name][2] == files.checksum(name) for name in compared)
