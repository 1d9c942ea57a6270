"""Bytes of others, harmed in any way: each reader reads what it can, or says why it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

#: What is done to bytes: what, where (a share of them), and with which bytes.
HARM = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "drop", "insert", "number", "repeat"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=8),
    ),
    max_size=6,
)

#: Examples of each; those that start a process, write a run or ask DuckDB take longer.
FEW = {"pstat": 5, "check": 8, "transitions.csv": 12, "transfers.csv": 12, "graph.csv": 12}
USUAL = 40


def harmed(data: bytes, harm: list[tuple[str, float, bytes]]) -> bytes:
    """Return bytes with things done to them."""
    for kind, share, given_bytes in harm:
        i, n = int(share * len(data)), len(given_bytes)
        if kind == "cut":
            data = data[:i]
        elif kind == "drop":
            data = data[:i] + data[i + n :]
        elif kind == "insert":
            data = data[:i] + given_bytes + data[i:]
        elif kind == "number":
            data = data[:i] + b"\xff" * n + data[i + n :]
        elif kind == "repeat":
            data = data[:i] + data[i : i + 64] * n + data[i:]
        else:
            data = data[:i] + given_bytes + data[i + n :]
    return data


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_make_a_reader_fail(name: str, tmp_path: Path) -> None:
    """Harmed or foreign bytes are read or refused, with an error that is meant for a person."""
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
    @given(st.builds(harmed, st.sampled_from(seeds), HARM) | st.binary(max_size=200))
    def hold(data: bytes) -> None:
        read(data)

    hold()
