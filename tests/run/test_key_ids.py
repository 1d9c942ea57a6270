"""Ids of keys: one for each text and type, the same in all tables, null for no key."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.run.key_ids import KeyIds
from dask_strata.schema import RECORDED, split_wire_key, wire_key
from dask_strata.store.arrow import _split_keys, arrow_schema, nulls

KEYS = st.none() | st.tuples(
    st.sampled_from(["", "a", "b", "('x', 0)"]), st.none() | st.sampled_from(["str", "tuple", "a"])
)
TEXT = pa.dictionary(pa.int32(), pa.string())


def table(keys: list[tuple[str, str | None] | None], n_chunks: int) -> pa.Table:
    """Return a table of keys in several chunks, each with a dictionary of its own."""
    size = -(-len(keys) // n_chunks) or 1
    columns = {
        name: pa.chunked_array(
            [
                pa.array([k and k[i] for k in keys[at : at + size]], pa.string())
                .dictionary_encode()
                .cast(TEXT)
                for at in range(0, len(keys), size)
            ],
            TEXT,
        )
        for i, name in enumerate(("key", "key_type"))
    }
    return pa.table(columns)


@given(st.lists(st.tuples(st.lists(KEYS), st.integers(1, 3)), max_size=4))
def test_an_id_stands_for_one_text_and_type(
    tables: list[tuple[list[tuple[str, str | None] | None], int]],
) -> None:
    """In all tables equal keys have equal ids, different keys different ids; ids lead to keys."""
    ids = KeyIds()
    known: dict[tuple[str, str | None], int] = {}
    for keys, n_chunks in tables:
        added = ids.add_to(table(keys, n_chunks))
        assert added["_row"].to_pylist() == list(range(len(keys)))
        for key, key_id in zip(keys, added["_key"].to_pylist(), strict=True):
            assert (key_id is None) == (key is None)
            if key is not None:
                assert known.setdefault(key, key_id) == key_id
    assert len(set(known.values())) == len(known)
    listed = ids.keys().to_pylist()
    assert {(r["key"], r["key_type"]): r["_key"] for r in listed} == known
    assert len(listed) == len(known)


@given(st.lists(st.text("a\x00(", max_size=6) | st.tuples(st.integers())))
def test_a_column_of_keys_is_split_like_single_keys(keys: list[str | tuple[int]]) -> None:
    """Splitting a whole column returns the results of `split_wire_key` for each key."""
    wires = [key if isinstance(key, str) else wire_key(key) for key in keys]
    texts, kinds = _split_keys(pa.array(wires, pa.string()))
    found = list(zip(texts.to_pylist(), kinds.to_pylist(), strict=True))
    assert found == [split_wire_key(wire) for wire in wires]


def test_nulls_that_share_their_memory_are_nulls() -> None:
    """They equal Arrow's own nulls for every type of a column, also next to values."""
    for kind in {f.type for t in RECORDED.values() for f in arrow_schema(t)}:
        for n in (0, 1, 70_000):
            found = nulls(kind, n)
            found.validate(full=True)
            assert found.equals(pa.nulls(n, kind))
        both = pa.chunked_array([nulls(kind, 2), pa.nulls(1, kind)]).combine_chunks()
        assert both.null_count == len(both) == 3
