"""The fileset of chunks to run again, and the chunks that it leaves out."""

from __future__ import annotations

from typing import Any

from dask_strata.analysis.chunks.chunks import Chunks, Share, fileset_to_run_again


def chunk(uri: str | None, first: int | None, state: str = "failed") -> dict[str, Any]:
    """Return a row of `chunks`, of a hundred entries."""
    last = None if first is None else first + 100
    row = {"dataset": "d", "uri": uri, "tree": "Events", "first": first, "last": last}
    return {**row, "state": state, "key": f"{uri}-{first}"}


def chunks(troubled: list[dict[str, Any]], begun: set[str], lost: tuple[Any, ...] = ()) -> Chunks:
    """Return chunks with these troubled rows; files in `begun` have a finished chunk."""
    return Chunks(
        total=Share("all", 0, 0, None, None, 0.0, 0, 0),
        states={},
        elapsed_seconds=None,
        phases={},
        by_dataset=(),
        by_file=(),
        by_worker=(),
        slowest=(),
        troubled=troubled,
        lost_files=lost,
        begun_files=frozenset(("d", uri, "Events") for uri in begun),
        reading=(),
        advice=(),
    )


def test_entries_that_are_known_are_steps() -> None:
    """Only chunks without a result run again, each range once."""
    rows = [chunk("/a", 100), chunk("/a", 0, "lost"), chunk("/a", 100), chunk("/a", 200, "retried")]
    again = fileset_to_run_again(chunks(rows, {"/a"}))
    spec = {"object_path": "Events", "steps": [[0, 100], [100, 200]]}
    assert again.fileset == {"d": {"files": {"/a": spec}}}
    assert again.left_out == []


def test_a_file_of_which_nothing_is_done_runs_as_a_whole() -> None:
    """A file with unknown entries is run as a whole if none of its chunks is done."""
    again = fileset_to_run_again(chunks([chunk("/a", None), chunk("/a", 0)], set()))
    assert again.fileset == {"d": {"files": {"/a": {"object_path": "Events"}}}}
    assert again.left_out == []


def test_unknown_entries_of_a_file_that_is_done_in_part_are_left_out_and_said() -> None:
    """A file with a finished chunk is not run as a whole."""
    unknown = chunk("/a", None)
    again = fileset_to_run_again(chunks([unknown, chunk("/a", 0)], {"/a"}))
    spec = {"object_path": "Events", "steps": [[0, 100]]}
    assert again.fileset == {"d": {"files": {"/a": spec}}}
    assert again.left_out == [unknown]


def test_what_cannot_be_opened_by_its_record_is_left_out_and_said() -> None:
    """A file that is unknown or has a redacted address is left out."""
    rows = [chunk(None, 0), chunk("https://***@host/a", 0), chunk("https://h/a?k=(redacted)", 0)]
    again = fileset_to_run_again(chunks(rows, set()))
    assert again.fileset == {}
    assert again.left_out == rows


def test_files_that_were_never_looked_into_run_as_a_whole() -> None:
    """Files without any chunk are run as a whole."""
    lost = {"dataset": "d", "uri": "/b", "tree": "Events", "key": "k", "exception": None}
    again = fileset_to_run_again(chunks([], set(), (lost,)))
    assert again.fileset == {"d": {"files": {"/b": {"object_path": "Events"}}}}
