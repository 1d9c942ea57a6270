"""Paths and URLs of inputs: text that looks like a path, and objects that contain one."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from dask_strata.recorder.inputs.extractors.call import peek

#: Bounds on the length of a path in characters.
_SHORTEST, _LONGEST = 3, 4096

#: Schemes that fsspec registers only when a further package is imported.
_MORE_SCHEMES = frozenset({"root", "roots", "xroot", "xroots", "davs", "dav", "oss", "swift"})

#: Protocols of local file systems.
_LOCAL = ("", "file", "local")

#: Suffixes of data files. `x.mean` and `numpy.float64` are no files, so not any word will do.
_DATA_FILES = (
    "arrow avro bam bed bin bmp bz2 cdf cfg csv dat db dcd dcm dta edf fa fasta fastq feather "
    "fit fits fq geojson gif gml gpkg grb grb2 grib grib2 gro gz h4 h5 hdf hdf4 hdf5 html ini "
    "j2k jp2 jpeg jpg json jsonl ism las laz lmdb log lz4 mat mca md model mov mp3 mp4 msgpack "
    "n5 nc nc3 nc4 ndjson nd2 nii npy npz nrrd nxs ods onnx orc parq parquet pb pcap pdb pdf pgm "
    "pickle pkl png pq prmtop pt pth raw rda rds root safetensors sam sas7bdat sav shp sqlite "
    "svm tab tar tfrecord tif tiff toml top tpr trr tsv txt ubj vcf wav webp xls xlsx xml xtc "
    "xyz xz yaml yml zarr zip zst zstd"
)
_SUFFIXES = frozenset(_DATA_FILES.split())
_SUFFIX = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,11})\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@functools.cache
def _schemes() -> frozenset[str]:
    # Dask opens files with fsspec.
    from fsspec.registry import known_implementations

    return frozenset(known_implementations) | _MORE_SCHEMES


def looks_like_path(text: str) -> bool:
    """Return whether a text is probably a path or URL, from its form alone.

    >>> [looks_like_path(t) for t in ("/data/x", "s3://bucket/key", "runs/a.dat", "x.csv")]
    [True, True, True, True]
    >>> [looks_like_path(t) for t in ("/", "x", "numpy.float64", "see: http", "a/b", "1.5")]
    [False, False, False, False, False, False]
    """
    if not _SHORTEST <= len(text) <= _LONGEST or "\0" in text:
        return False
    if text[0] == "/":
        return text[1] not in "/* \n"
    if "." not in text and "://" not in text:
        return False
    scheme, slashes, rest = text.partition("://")
    if slashes:
        # fsspec writes a chain of file systems as `simplecache::s3://…`.
        last = scheme.rpartition("::")[2]
        return bool(rest) and _SCHEME.match(last) is not None and last.lower() in _schemes()
    return _is_relative_path(text) or (os.name == "nt" and _DRIVE.match(text) is not None)


def _is_relative_path(text: str) -> bool:
    suffix = _SUFFIX.search(text)
    if suffix is None or text[0] in " \n" or "\n" in text:
        return False
    if suffix[1].lower() in _SUFFIXES:
        return bool(text[: suffix.start()])
    return "/" in text and " " not in text and text[suffix.start() - 1] != "/"


def text_path(value: Any) -> str | None:
    """Return a path as text if the value is a path, else None.

    >>> text_path(b"/data/x.csv"), text_path("mean")
    ('/data/x.csv', None)
    """
    if isinstance(value, str):
        return value if looks_like_path(value) else None
    if isinstance(value, bytes):
        # Bytes are mostly data, so accept only an absolute path with a suffix.
        if len(value) > _LONGEST or value[:1] != b"/":
            return None
        text = os.fsdecode(value)
        return text if looks_like_path(text) and _SUFFIX.search(text) else None
    if isinstance(value, os.PathLike):
        return os.fsdecode(os.fspath(value))
    return None


def given_path(value: Any) -> str | None:
    """Return a value as text if its type can be a path's, whatever it looks like; else None.

    >>> given_path("x"), given_path(b"/data"), given_path(7)
    ('x', '/data', None)
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    return None


def absolute(uri: str) -> str:
    """Return a local path as a normalised absolute path, and a URL unchanged.

    >>> absolute("/data//x/../y.csv"), absolute("s3://bucket/key"), absolute("file:///x.csv")
    ('/data/y.csv', 's3://bucket/key', '/x.csv')
    """
    if "://" in uri:
        if uri.startswith(("file:///", "local:///")):
            return absolute(uri.partition("://")[2])
        return uri
    if uri[:1] == "/" and "//" not in uri and "/." not in uri:
        return uri
    try:
        return os.path.abspath(uri)
    except OSError:  # the current folder was deleted
        return uri


def on_filesystem(path: str, fs: Any) -> str:
    """Return a path of one of fsspec's file systems as a URL, and a local path unchanged.

    >>> from types import SimpleNamespace
    >>> on_filesystem("bucket/key", SimpleNamespace(protocol=("s3", "s3a")))
    's3://bucket/key'
    """
    if "://" in path:
        return path
    protocol = getattr(fs, "protocol", None)
    if isinstance(protocol, (tuple, list)):
        protocol = protocol[0] if protocol else None
    if not isinstance(protocol, str) or protocol in _LOCAL or protocol == "abstract":
        return path
    return f"{protocol}://{path}"


def open_file(thing: Any) -> tuple[str, str] | None:
    """Return uri and mode of one of fsspec's files, open or not; None for other objects."""
    path = given_path(peek(thing, "path"))
    if not path:
        return None
    mode = peek(thing, "mode")
    return on_filesystem(path, peek(thing, "fs")), mode if isinstance(mode, str) else "r"
