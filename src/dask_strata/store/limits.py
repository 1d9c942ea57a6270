"""How much of what comes from a run's folder is believed: the one place for these limits.

What this version writes is within them: the recorder splits what is larger, and compaction
looks at what it wrote before it deletes anything.
"""

from __future__ import annotations

#: Bytes that one frame of a segment may unpack to. In memory they may become twenty times that.
FRAME_BYTES = 32 << 20

#: Bytes that the payload of a frame may have: what cannot be compressed becomes a little more.
PAYLOAD_BYTES = FRAME_BYTES + (1 << 20)

#: Rows that one frame may have; the same holds for the values of any list in it.
FRAME_ROWS = 1 << 20

#: Lists and mappings in one frame: each takes more memory than the byte that it may be.
FRAME_LISTS = 1 << 20

#: Bytes that `run.json` may have, and that an index of Parquet may have.
MANIFEST_BYTES = 1 << 20
INDEX_BYTES = 32 << 20

#: Characters of the name of a process, a table or an addition.
NAME_CHARACTERS = 200

#: Memory that the tables of a run may take: so much, and so many bytes for each byte of its files.
MEMORY_BYTES = 256 << 20
MEMORY_RATIO = 400

#: Bytes that a cell takes at least, as it is counted here.
CELL_BYTES = 8

#: Bytes that are searched and checked for the next intact frame, for each byte of a segment.
SEARCH_RATIO = 16
SEARCH_BYTES = 256 << 20

#: Damaged parts of one segment that are told one by one.
DAMAGES = 100

#: Times are between 1970 and 2116, so that sums and differences of two stay whole numbers of
#: nanoseconds; counts of bytes, and seconds, are less than this.
TIME_NS = 1 << 62
COUNT = 1 << 53


class TooMuchError(ValueError):
    """Something would take more memory, or time, than what it was read from may."""


class Budget:
    """How much memory what is read of one run may still take.

    Parameters
    ----------
    base : int, optional
        Bytes that any run may take, however small its files are.
    """

    def __init__(self, base: int = MEMORY_BYTES) -> None:
        self._left = base

    def allow(self, file_bytes: int) -> None:
        """Take a file of so many bytes into account."""
        self._left += file_bytes * MEMORY_RATIO

    def spend(self, amount: int) -> None:
        """Take so many bytes of memory off what is left.

        Raises
        ------
        TooMuchError
            There is not so much left; nothing was taken off then.
        """
        if amount > self._left:
            raise TooMuchError(
                f"it would take {amount:,} bytes of memory, more than {MEMORY_RATIO} times "
                "what its files have"
            )
        self._left -= amount
