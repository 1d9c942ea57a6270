"""Frames of the user's code: which files are the user's, and the user's line on a stack."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import dask
import distributed


def _folder_of(file: str, levels: int) -> str:
    folder = os.path.abspath(file)
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder + os.sep


#: Folders of Dask and dask-strata, whose frames are not the user's.
NOT_USER = (
    _folder_of(dask.__file__, 1),
    _folder_of(distributed.__file__, 1),
    _folder_of(__file__, 3),
)
_STDLIB = _folder_of(os.__file__, 1)
_INSTALLED = ("site-packages", "dist-packages")

#: Begins of the names of code that Python and libraries generate.
_GENERATED = ("<frozen", "<__array_function__", "<attrs generated", "<decorator-gen", "<makefun")

#: Files that start threads: their frames are at the bottom of a stack.
_STARTS = tuple(
    str(Path(_STDLIB, file))
    for file in ("threading.py", "runpy.py", "concurrent/futures/thread.py")
)

#: Most frames of a stack that are searched.
_MAX_FRAMES = 500


class Place(NamedTuple):
    """The user's line on a stack, and what it called; None where the stack has no such frame.

    Attributes
    ----------
    file, line, function : str, int, str
        The innermost frame of the user's code.
    calls : str or None
        Module and function that this line called, if it is not the user's: its path below the
        folder of packages, and the name. Without the user's frame, the outermost function of a
        library.
    """

    file: str | None
    line: int | None
    function: str | None
    calls: str | None


NOWHERE = Place(None, None, None, None)


@functools.lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Return whether a file is neither installed nor a part of Python or Dask.

    Parameters
    ----------
    file : str
        Name of the file as in a code object.

    Examples
    --------
    >>> is_users("<dynamic-code>"), is_users("/home/me/work.py"), is_users(os.__file__)
    (True, True, False)
    """
    installed = any(folder in file for folder in _INSTALLED)
    return not installed and not file.startswith((*NOT_USER, _STDLIB, *_GENERATED))


@contextmanager
def other_frames() -> Iterator[dict[int, FrameType]]:
    """Yield the innermost frames of all other threads by their identities, and release them.

    The frame of the calling thread must not be among them: it would refer to itself, and the
    local variables of all threads would stay in memory until the garbage collector runs. CPython
    3.11 crashes if one of them is a memoryview that is in use. Keep no frame after the block.
    """
    frames = sys._current_frames()  # noqa: SLF001  as Dask does
    frames.pop(threading.get_ident(), None)
    try:
        yield frames
    finally:
        frames.clear()


def place_of(frame: FrameType | None) -> Place:
    """Return the user's innermost line on a stack, and the function that it called.

    Parameters
    ----------
    frame : frame or None
        The innermost frame of the stack.
    """
    inner: FrameType | None = None
    outermost: FrameType | None = None
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        file = code.co_filename
        if is_users(file):
            calls = None if inner is None else _label(inner)
            return Place(file, frame.f_lineno, code.co_name, calls)
        if not file.startswith((*NOT_USER, *_STARTS, "<frozen")):
            outermost = frame
        inner, frame = frame, frame.f_back
    return NOWHERE if outermost is None else Place(None, None, None, _label(outermost))


def _label(frame: FrameType) -> str:
    return f"{_short(frame.f_code.co_filename)}:{frame.f_code.co_name}"


@functools.lru_cache(maxsize=4096)
def _short(file: str) -> str:
    """Return the path of an installed module below the folder of packages; of others two parts.

    >>> _short("/v/lib/python3.11/site-packages/pandas/core/frame.py"), _short("<frozen x>")
    ('pandas/core/frame.py', '<frozen x>')
    """
    path = file.replace("\\", "/")
    for root in (_STDLIB.replace("\\", "/"), *(f"/{name}/" for name in _INSTALLED)):
        _, found, after = path.rpartition(root)
        if found and after:
            path = after
    return path if not path.startswith("/") else "/".join(path.rsplit("/", 2)[-2:])
