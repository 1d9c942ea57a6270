"""Keep commands that only read from importing pandas, which takes 0.25 s of CPU and 33 MB.

PyArrow imports pandas where a list is converted for the first time, to recognise pandas' objects.
Without pandas it assumes that there are none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

#: Commands that run no code of users, and make no data frames.
READERS = frozenset({
    "check", "chunks", "compare", "follow", "io", "jobs", "lineage", "list", "logs", "map", "open",
    "query", "report", "show", "story", "stream", "tables", "tag", "tasks", "why",
})  # fmt: skip


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("commands that only read do without pandas", name=fullname)
        return None


def avoid_pandas(arguments: Sequence[str]) -> None:
    """Refuse the import of pandas in this process, if the arguments are those of a reader.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of the program.
    """
    command = next((each for each in arguments if not each.startswith("-")), None)
    if command in READERS and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
