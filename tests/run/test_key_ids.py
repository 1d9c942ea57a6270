"""Numbers of keys: one for each text and type, the same in all tables, null for none."""

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
    """Return a table of keys, in several chunks with dictionaries of their own."""
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
def test_a_number_stands_for_one_text_and_type(
    tables: list[tuple[list[tuple[str, str | None] | None], int]],
) -> None:
    """In all tables equal keys have equal numbers, others others; all keys can be named again."""
    numbers = KeyIds()
    known: dict[tuple[str, str | None], int] = {}
    for keys, n_chunks in tables:
        added = numbers.add_to(table(keys, n_chunks))
        assert added["_row"].to_pylist() == list(range(len(keys)))
        for key, number in zip(keys, added["_key"].to_pylist(), strict=True):
            assert (number is None) == (key is None)
            if key is not None:
                assert known.setdefault(key, number) == number
    assert len(set(known.values())) == len(known)
    told = numbers.keys().to_pylist()
    assert {(r["key"], r["key_type"]): r["_key"] for r in told} == known
    assert len(told) == len(known)


@given(st.lists(st.text("a\x00(", max_size=6) | st.tuples(st.integers())))
def test_keys_are_taken_apart_as_one_is(keys: list[str | tuple[int]]) -> None:
    """What is done to all keys of a column at once is what `split_wire_key` does to each."""
    wires = [key if isinstance(key, str) else wire_key(key) for key in keys]
    texts, kinds = _split_keys(pa.array(wires, pa.string()))
    found = list(zip(texts.to_pylist(), kinds.to_pylist(), strict=True))
    assert found == [split_wire_key(wire) for wire in wires]


def test_nulls_that_share_their_memory_are_nulls() -> None:
    """They are those of Arrow's own, of every type that a column has, also among values."""
    for kind in {f.type for t in RECORDED.values() for f in arrow_schema(t)}:
        for n in (0, 1, 70_000):
            found = nulls(kind, n)
            found.validate(full=True)
            assert found.equals(pa.nulls(n, kind))
        both = pa.chunked_array([nulls(kind, 2), pa.nulls(1, kind)]).combine_chunks()
        assert both.null_count == len(both) == 3
