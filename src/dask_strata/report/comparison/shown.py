"""A comparison with displays: for ``print`` and for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dask_strata.analysis.compare import Comparison
from dask_strata.report.comparison import write_comparison
from dask_strata.report.words import count


@dataclass(frozen=True, repr=False)
class ShownComparison(Comparison):
    """A comparison that ``print`` shows as the command does, and a notebook as HTML."""

    def __repr__(self) -> str:
        groups = ", ".join(
            f"{group.name}: {count(len(group.runs), 'run')}" for group in self.groups
        )
        return f"<Comparison {groups}>"

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        from dask_strata.report.comparison.text import print_text

        out = StringIO()
        print_text(self, (), Console(file=out, width=100, markup=False, highlight=False))
        return out.getvalue().rstrip()

    def _repr_html_(self) -> str:
        from dask_strata.report.comparison.page import comparison_part

        return comparison_part(self)

    def report(self, path: str | Path) -> Path:
        """Write the page of the comparison, and return its path.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        StrataError
            The file cannot be written.
        """
        write_comparison(self, (), Path(path))
        return Path(path)
