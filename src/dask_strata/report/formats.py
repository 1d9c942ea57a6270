"""The formats of output files, and the functions that write them: one registry for all layers.

A writer is registered for a type of content and a format. `dask_strata.report.rows` registers
the formats of tables when it is imported, `dask_strata.capture.writers` those of task handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_Content = TypeVar("_Content")


@dataclass(frozen=True)
class Format:
    """A format of output files.

    Attributes
    ----------
    name : str
        Its name on command lines and in addresses.
    suffix : str
        Suffix of a file in this format, with its dot; empty if the output is a folder.
    media_type : str or None
        Content type for HTTP; None if the server does not offer the format.
    """

    name: str
    suffix: str
    media_type: str | None = None

    @property
    def is_folder(self) -> bool:
        """Whether the output is a folder of files."""
        return not self.suffix


TABLE = Format("table", ".txt")
CSV = Format("csv", ".csv", "text/csv")
JSON = Format("json", ".json", "application/json")
PARQUET = Format("parquet", ".parquet", "application/octet-stream")

#: Formats of rows: a command line offers them before their writers are imported.
OF_ROWS = (TABLE, CSV, JSON, PARQUET)

_FORMATS: dict[type, dict[str, Format]] = {}
_WRITERS: dict[tuple[type, str], Callable[[Any, Path], None]] = {}


def register(
    content: type[_Content], output_format: Format, writer: Callable[[_Content, Path], None]
) -> None:
    """Register the function that writes a type of content in a format.

    Parameters
    ----------
    content : type
        Type of the values that the function writes.
    output_format : Format
        The format.
    writer : callable
        Called with the value and the path of the output.

    Raises
    ------
    ValueError
        The type already has a writer for a format of this name.

    Examples
    --------
    >>> class Image: ...
    >>> register(Image, Format("raw", ".bin"), lambda image, path: None)
    >>> [output_format.suffix for output_format in formats_of(Image)]
    ['.bin']
    """
    formats = _FORMATS.setdefault(content, {})
    if output_format.name in formats:
        raise ValueError(f"{content.__name__} already has a format {output_format.name}.")
    formats[output_format.name] = output_format
    _WRITERS[content, output_format.name] = writer


def formats_of(content: type) -> tuple[Format, ...]:
    """Return the formats that a type of content can be written in, in order of registration."""
    return tuple(_FORMATS.get(content, {}).values())


def format_of(content: type, name: str) -> Format:
    """Return the format with a name.

    Raises
    ------
    KeyError
        The type of content has no format of this name.
    """
    return _FORMATS[content][name]


def write(value: object, name: str, path: Path) -> None:
    """Write a value in the format with a name.

    Parameters
    ----------
    value : object
        A value whose type, or a base of it, is registered.
    name : str
        Name of the format.
    path : Path
        File to write, or folder if the format is one.

    Raises
    ------
    KeyError
        The value's type has no format of this name.
    OSError
        The output cannot be written.
    """
    for kind in type(value).__mro__:
        if (kind, name) in _WRITERS:
            _WRITERS[kind, name](value, path)
            return
    raise KeyError((type(value), name))
