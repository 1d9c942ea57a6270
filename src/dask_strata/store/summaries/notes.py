"""Tags and the note that a user gave a run: `notes.json` in its folder.

The file is no part of the record: `check` and the stored answers do not depend on it. It may come
from anyone, so that a file that is not as this module writes it is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dask_strata.errors import StrataError, UsageError
from dask_strata.store.safe_files import opened_folder, read_inside, replace_inside

#: Name of the file in a run's folder.
NOTES = "notes.json"

_FORMAT = 1

#: Bytes of the file, number of tags, and characters of a tag and of the note.
_BYTES = 1 << 16
_TAGS = 50
_TAG_CHARACTERS = 100
_NOTE_CHARACTERS = 4_000


@dataclass(frozen=True)
class Notes:
    """Tags and note of a run.

    Parameters
    ----------
    tags : tuple of str
        Words, or pairs such as ``size=big``; each once, in the order in which they were added.
    note : str
        A text of one or more lines; empty without one.
    """

    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(folder: Path) -> Notes:
    """Return the tags and the note of a run; empty ones if it has none.

    Parameters
    ----------
    folder : Path
        The run's folder.

    Raises
    ------
    StrataError
        The file is damaged, too large, or written by a later version.
    """
    try:
        return _notes(json.loads(read_inside(folder, NOTES, limit=_BYTES)))
    except (FileNotFoundError, NotADirectoryError):
        return Notes()
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        raise StrataError(
            f"{folder / NOTES} cannot be read: it is not as this version writes it.",
            hint="Remove the file to start again without tags and note; the record is unaffected.",
        ) from None


def readable_notes(folder: Path) -> Notes:
    """Return the tags and the note of a run for a list; empty ones if they cannot be read.

    Parameters
    ----------
    folder : Path
        The run's folder, or its bundle, which has none.
    """
    try:
        return read_notes(folder)
    except StrataError:
        return Notes()


def change_notes(
    folder: Path, *, add: Iterable[str] = (), remove: Iterable[str] = (), note: str | None = None
) -> Notes:
    """Change the tags and the note of a run, all or nothing, and return them.

    Parameters
    ----------
    folder : Path
        The run's folder.
    add, remove : iterable of str
        Tags.
    note : str, optional
        The new note; empty to remove it. Without it, the present one stays.

    Raises
    ------
    UsageError
        A tag or the note is too long or has other characters than allowed, a tag to remove is
        not there, or there are too many.
    StrataError
        The file cannot be read or written.
    """
    add, remove = [_tag(each) for each in add], [_tag(each) for each in remove]
    if note is not None:
        note = _checked_note(note.strip())
    try:
        with opened_folder(folder) as fd:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(fd, fcntl.LOCK_EX)
            old = read_notes(folder)
            if missing := [each for each in remove if each not in old.tags]:
                shown = ", ".join(old.tags) or "none"
                raise UsageError(
                    f"{folder.name} has no tag {missing[0]}.",
                    hint=f"Tags that can be removed: {shown}. Tags of `record --tag` stay.",
                )
            kept = [each for each in old.tags if each not in remove]
            tags = tuple(dict.fromkeys([*kept, *add]))
            if len(tags) > _TAGS:
                raise UsageError(f"A run has at most {_TAGS} tags.", hint="Remove one: --remove")
            new = replace(old, tags=tags, note=old.note if note is None else note)
            if new != old:
                replace_inside(folder, NOTES, data=_bytes(new))
            return new
    except OSError as error:
        reason = error.strerror or error
        raise StrataError(f"{folder / NOTES} cannot be written: {reason}.") from None


def notes_mark(folder: Path) -> tuple[int, ...]:
    """Return a value that changes when the notes of a run change; empty without notes."""
    try:
        status = os.lstat(folder / NOTES)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _bytes(notes: Notes) -> bytes:
    content = {"format": _FORMAT, "tags": notes.tags, "note": notes.note}
    return (json.dumps(content, indent=2) + "\n").encode()


def _notes(found: Any) -> Notes:
    """Return the content of the file; raise TypeError, ValueError or LookupError if it is wrong."""
    if found["format"] != _FORMAT:
        raise ValueError("another format")
    tags, note = found["tags"], found["note"]
    if not isinstance(tags, list) or len(tags) > _TAGS or not isinstance(note, str):
        raise TypeError("a field has a wrong type")
    try:
        return Notes(tuple(dict.fromkeys(_tag(each) for each in tags)), _checked_note(note))
    except UsageError as error:
        raise ValueError(error.message) from None


def _tag(tag: Any) -> str:
    text = tag.strip() if isinstance(tag, str) else ""
    if not text or len(text) > _TAG_CHARACTERS or not text.isprintable() or "," in text:
        raise UsageError(
            f"{str(tag)[:_TAG_CHARACTERS]!r} cannot be a tag.",
            hint=f"A tag is a word, or a pair such as size=big: 1 to {_TAG_CHARACTERS} "
            "printable characters without a comma.",
        )
    return text


def _checked_note(note: str) -> str:
    if len(note) > _NOTE_CHARACTERS:
        raise UsageError(f"A note has at most {_NOTE_CHARACTERS:,} characters.")
    if not all(each.isprintable() or each in "\n\t" for each in note):
        raise UsageError("A note has printable characters, tabs and line breaks only.")
    return note
