"""What libraries did in an execution: chunks and phases."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dask_strata.recorder.sources.library_reads import LibraryUse

FACTS: dict[str, Any] = {"dataset": "d", "uri": "/f.root", "tree": "Events"}


def begin_chunk(use: LibraryUse, number: int, source: int) -> None:
    """Build and begin to process a chunk, as coffea does."""
    use.seen(number, {**FACTS, "first": number, "last": number + 1}, None, source)
    use.making(number)
    use.ready(number)


@pytest.mark.parametrize("closes", ["before", "during", "after"])
def test_a_source_may_close_while_the_next_chunk_is_built(closes: str) -> None:
    """The garbage collector closes a file when it likes: no chunk is lost."""
    use = LibraryUse(threading.get_ident())
    use.building()
    begin_chunk(use, 1, source=11)
    if closes == "before":
        use.closing(11)
    use.building()
    if closes == "during":
        use.closing(11)
    begin_chunk(use, 2, source=22)
    if closes == "after":
        use.closing(11)
    use.finish()
    found = list(use.seen_chunks())
    assert [row["first"] for row in found] == [1, 2]
    for row in found:
        assert row["build_seconds"] > 0
        assert row["process_seconds"] > 0
