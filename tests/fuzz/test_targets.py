"""Damaged input of any kind: each reader returns rows, or raises an error for users."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

#: Mutations of bytes: kind, position as a share of the length, and new bytes.
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "drop", "insert", "number", "repeat"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=8),
    ),
    max_size=6,
)

#: Number of examples; readers that start a process, write a run or use DuckDB are slow.
FEW = {"pstat": 5, "check": 8, "transitions.csv": 12, "transfers.csv": 12, "graph.csv": 12}
USUAL = 40


def mutated(data: bytes, mutations: list[tuple[str, float, bytes]]) -> bytes:
    """Return bytes after some mutations."""
    for kind, share, new in mutations:
        i, n = int(share * len(data)), len(new)
        if kind == "cut":
            data = data[:i]
        elif kind == "drop":
            data = data[:i] + data[i + n :]
        elif kind == "insert":
            data = data[:i] + new + data[i:]
        elif kind == "number":
            data = data[:i] + b"\xff" * n + data[i + n :]
        elif kind == "repeat":
            data = data[:i] + data[i : i + 64] * n + data[i:]
        else:
            data = data[:i] + new + data[i + n :]
    return data


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_make_a_reader_fail(name: str, tmp_path: Path) -> None:
    """Damaged or foreign bytes are read, or refused with an error for users."""
    for folder in ("seeds", "work"):
        (tmp_path / folder).mkdir()
    seeds = TARGETS[name].seeds(tmp_path / "seeds")
    read = TARGETS[name].make(tmp_path / "work")
    for seed in seeds:
        read(seed)

    @settings(
        deadline=None,
        max_examples=FEW.get(name, USUAL),
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(st.builds(mutated, st.sampled_from(seeds), MUTATIONS) | st.binary(max_size=200))
    def never_fails(data: bytes) -> None:
        read(data)

    never_fails()
