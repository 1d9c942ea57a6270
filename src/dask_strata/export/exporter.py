"""The interface that each format of an export implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from dask_strata.run import Run

#: Is called with the rows that were read, and the rows in all if that is known.
Progress = Callable[[int, int | None], None]


class Option(NamedTuple):
    """A choice that a format offers, as ``--with NAME``.

    Attributes
    ----------
    name : str
        Its name.
    help : str
        What it does, as one line.
    """

    name: str
    help: str


@dataclass
class Job:
    """One export: what was chosen, and what is said about the output.

    Attributes
    ----------
    options : frozenset of str
        Names of the chosen options.
    values : mapping of str to str
        Further choices with a value, such as the license.
    notes : list of str
        What is missing in the output, left out or aggregated, a sentence each. The exporter writes
        them into its output.
    counts : dict of str to int
        Number of each kind of object in the output.
    """

    options: frozenset[str] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    on_progress: Progress = lambda _done, _total: None

    def progress(self, done: int, total: int | None = None) -> None:
        """Report how many rows were read, of how many."""
        self.on_progress(done, total)

    def note(self, text: str) -> None:
        """Add a sentence on what is missing in the output, left out or aggregated, once."""
        if text not in self.notes:
            self.notes.append(text)


class Exporter(ABC):
    """A format that runs can be exported to.

    Attributes
    ----------
    name : str
        Its name, for ``--to``.
    summary : str
        What it is for, as one line.
    suffix : str
        End of the names of such files; empty if the output is a folder.
    media_type : str or None
        Content type for HTTP; None for folders, which the server does not offer.
    options : tuple of Option
        What can be chosen.
    value_names : tuple of str
        Names of the choices with a value that it takes.
    url_targets : bool
        Whether it can send a run to an ``http://`` or ``https://`` URL.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    suffix: ClassVar[str]
    media_type: ClassVar[str | None] = None
    options: ClassVar[tuple[Option, ...]] = ()
    value_names: ClassVar[tuple[str, ...]] = ()
    url_targets: ClassVar[bool] = False

    @abstractmethod
    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write a run.

        Parameters
        ----------
        run : Run
            The run, which is only read.
        path : Path
            File or folder to create.
        job : Job
            What was chosen. Its notes belong into the output; the exporter adds its own ones, and
            the counts.

        Raises
        ------
        StrataError
            The run cannot be exported in this format.
        OSError
            The output cannot be written.
        """

    def output(self, options: Collection[str]) -> tuple[str, str | None]:  # noqa: ARG002
        """Return `suffix` and `media_type` of the output with some options.

        Formats with a notation by choice override it.
        """
        return self.suffix, self.media_type

    def send(self, run: Run, url: str, job: Job) -> None:
        """Send a run to a URL; only formats with `url_targets` can.

        Raises
        ------
        StrataError
            The receiver cannot be reached, or refuses the run.
        """
        raise NotImplementedError(self.name)
