"""Prefixes that are derived from keys on reading equal Dask's own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from dask.utils import key_split
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.run.workspace import Workspace

WORDS = st.one_of(
    st.text(alphabet="abcdefgxyz", min_size=1, max_size=10),
    st.text(alphabet="abcdef0123456789", min_size=8, max_size=32),
    st.sampled_from(["Ωmega", "_map", "(x", "a.b.c", "8", "", " ", "<lambda>", "<a.b at 0x1>"]),
)
#: Only Python's own texts of objects begin with an angle bracket.
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), max_size=40)
TEXTS = st.one_of(st.lists(WORDS, max_size=5).map("-".join), ANY)
KEYS = st.recursive(
    st.one_of(TEXTS, st.integers(), st.floats()),
    lambda part: st.tuples(part, st.integers()),
    max_leaves=3,
)


@pytest.fixture(scope="module")
def workspace():
    made = Workspace()
    yield made
    made.close()


def derived(workspace: Workspace, *keys: object) -> list[str | None]:
    table = pa.table({"key": [str(k) for k in keys], "type": [type(k).__name__ for k in keys]})
    workspace.connection.register("keys", table)
    found = workspace.connection.execute("select key_prefix(key, type) from keys").fetchall()
    return [prefix for (prefix,) in found]


def test_prefixes_equal_dasks(workspace: Workspace) -> None:
    """Keys as Dask and its users make them, with the quirks of Dask's rule."""
    hashed = "8838909ee9756e34565341881e2e6f0c"
    texts = (
        f"x x-1 x-1-2 hello-world-1 {hashed} sum-{hashed} x-abcdefab a-fabulous _(x) 1-a - -a ' "
        f"('x-2',1) ('early-abc',0) shuffle-barrier-{hashed} read-parquet-fused-assign-{hashed} "
        f"('getitem-{hashed}',3,4)"
    ).split()
    tuples = [("x-2", 1), ("early-abc", 0), (("x-y", 1), 2), ("it's-a", 1), (1, 2)]
    tuples += [(f"block-info-_map-{hashed}", 1), ("getitem-sum", 1)]
    keys = [*texts, "", "<a.b object at 0x1>", "('x', 1)", *tuples, 5, 1.5]
    assert derived(workspace, *keys) == [key_split(key) for key in keys]


@given(st.lists(KEYS, min_size=1, max_size=20))
def test_no_key_has_another_prefix(workspace: Workspace, keys: list[object]) -> None:
    """The prefix of any key is Dask's, or unknown where its text has escapes or the mark U+0001."""
    for key, found in zip(keys, derived(workspace, *keys), strict=True):
        unknown = found is None and any(mark in str(key) for mark in ("\\", "\x01"))
        assert found == key_split(key) or unknown, key
