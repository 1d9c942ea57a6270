"""Limits on the memory and time that reading a run's folder may take, whoever made the folder.

Everything that this version writes stays within these limits: the recorder splits larger frames,
and compaction reads its Parquet back before it deletes a segment.
"""

from __future__ import annotations

#: Bytes of one frame after decompression. Python objects may take twenty times as much.
FRAME_BYTES = 32 << 20

#: Bytes of one frame as stored: data that does not compress grows a little.
PAYLOAD_BYTES = FRAME_BYTES + (1 << 20)

#: Rows of one frame, and values of any list in it.
FRAME_ROWS = 1 << 20

#: Lists and mappings in one frame: each may be a single byte there but takes more in memory.
FRAME_LISTS = 1 << 20

#: Bytes of the texts of one column in a frame, each counted for every row: Arrow's offsets have
#: 32 bits, and a table joins several frames.
COLUMN_BYTES = 1 << 30

#: Bytes of `run.json`, and of the index of a Parquet folder.
MANIFEST_BYTES = 1 << 20
INDEX_BYTES = 32 << 20

#: Bytes of the summary in a Parquet folder.
SUMMARY_BYTES = 4 << 20

#: Members of a bundle, and bytes of its directory.
ZIP_MEMBERS = 100_000
ZIP_DIRECTORY_BYTES = 32 << 20

#: Characters in the name of a process, a table or an addition.
NAME_CHARACTERS = 200

#: Memory for the tables of a run: a fixed amount, plus this many bytes for each byte of its files.
MEMORY_BYTES = 256 << 20
MEMORY_RATIO = 400

#: Memory that the budget counts for each cell, in bytes.
CELL_BYTES = 8

#: Bytes examined in the search for the next intact frame: a fixed number, plus this many for each
#: byte of the segment.
SEARCH_RATIO = 16
SEARCH_BYTES = 256 << 20

#: Damaged parts of one segment that are listed individually.
DAMAGES = 100

#: Pieces of tables without sequence numbers of one segment whose place is kept.
PIECES = 1000

#: Upper limit of times, in nanoseconds since the epoch (the year 2116): sums and differences of
#: two of them still fit in 64 bits. `COUNT` limits counts of bytes, and seconds.
TIME_NS = 1 << 62
COUNT = 1 << 53


class LimitExceededError(ValueError):
    """Reading would take more memory or time than the size of the files justifies."""


class Budget:
    """Memory that reading one run may still take.

    Parameters
    ----------
    base : int, optional
        Bytes that every run may take, however small its files are.

    Examples
    --------
    >>> budget = Budget(base=0)
    >>> budget.add_file(10)
    >>> budget.spend(4000)
    >>> try:
    ...     budget.spend(1)
    ... except LimitExceededError:
    ...     print("too large")
    too large
    """

    def __init__(self, base: int = MEMORY_BYTES) -> None:
        self._left = base

    def add_file(self, file_bytes: int) -> None:
        """Raise the budget in proportion to the size of a file in bytes."""
        self._left += file_bytes * MEMORY_RATIO

    def spend(self, amount: int) -> None:
        """Subtract bytes of memory from the budget.

        Raises
        ------
        LimitExceededError
            The budget is smaller than the amount; it stays unchanged.
        """
        if amount > self._left:
            raise LimitExceededError(
                f"reading would take {amount:,} more bytes of memory; the limit is "
                f"{MEMORY_BYTES >> 20} MiB and {MEMORY_RATIO} times the size of the files"
            )
        self._left -= amount
