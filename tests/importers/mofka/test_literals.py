"""Cells with the text of a dict or set of keys: read, whatever they hold, and never evaluated."""

from __future__ import annotations

import ast
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dask_strata.importers.mofka.literals import (
    MAX_KEY_CHARACTERS,
    ONE_KEY,
    USUAL,
    LiteralError,
    dependencies,
    keys,
    sizes,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text("ab'\"\\\n\r\t,:{}[]() #é\0")
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.recursive(
    TEXTS | NUMBERS, lambda inner: st.lists(inner, max_size=5).map(tuple), max_leaves=8
)
USUAL_KEYS = st.from_regex(r"[ -~]{0,12}", fullmatch=True) | st.tuples(
    st.from_regex(r"[a-z-]{1,8}", fullmatch=True), st.integers(-3, 10**6), st.integers(0, 9)
)
SIZES = st.integers(0, 2**63 - 1)

READERS = [sizes, keys, lambda cell: list(dependencies(cell))]


def unique(found: list[Any]) -> list[str]:
    """Return the texts of keys, each once, in order."""
    return list(dict.fromkeys(str(key) for key in found))


@given(st.dictionaries(KEYS | USUAL_KEYS, SIZES, min_size=1, max_size=6))
def test_a_dict_of_sizes_comes_back(found: dict[Any, int]) -> None:
    """Each key of a dict's text is the text that Dask shows for it, with its size."""
    texts = {str(key): n for key, n in found.items()}
    assert dict(sizes(repr(found))) == texts
    assert [key for key, _ in sizes(repr(found))] == list(texts)


@given(st.lists(KEYS | USUAL_KEYS, max_size=6))
def test_a_set_list_or_tuple_of_keys_comes_back(found: list[Any]) -> None:
    """The text of any collection of keys gives these keys."""
    assert keys(repr(found)) == unique(found)
    assert keys(repr(tuple(found))) == unique(found)
    assert sorted(keys(repr(set(found)))) == sorted(unique(list(set(found))))
    assert keys(" " + repr(found) + "\n") == unique(found)


@given(st.dictionaries(KEYS | USUAL_KEYS, st.frozensets(KEYS, max_size=4), max_size=5))
def test_dependencies_come_back(graph: dict[Any, frozenset[Any]]) -> None:
    """The text of a dict of sets gives each key with the keys that it needs."""
    cell = repr({key: set(needs) for key, needs in graph.items()})
    found = list(dependencies(cell))
    assert [key for key, _ in found] == [str(key) for key in graph]
    assert [sorted(needs) for _, needs in found] == [
        sorted(unique(list(needs))) for needs in graph.values()
    ]


GARBAGE = [
    "",
    " ",
    "{",
    "}",
    "()",
    "{}",
    "[]",
    "nan",
    "None",
    "8",
    "{'a'}",
    "{'a': }",
    "{'a': 'b'}",
    "{'a': -1}",
    "{'a': 1.5}",
    "{'a': 8} ",
    "{'a': 8}}",
    "{'a': 8,, 'b': 8}",
    "{'a': 8: 9}",
    "{: 8}",
    "{'a' 'b': 8, 'c'}",
    "{'a': 8, **{'b': 8}}",
    "{f'{1}': 8}",
    "{rb'a': 8}",
    "{x: 8 for x in 'ab'}",
    "{(lambda: 'a')(): 8}",
    "{__import__('os').getpid(): 8}",
    "{'a'.upper(): 8}",
    "{'a'[0]: 8}",
    "{'a' + 'b': 8}",
    "{'a' if 1 else 'b': 8}",
    "{(x := 'a'): 8}",
    "{['a']: 8}",
    "{{'a': 1}: 8}",
    "{'\\ud800': 8}",
    "{'\\x': 8}",
    "{'\\N{NO SUCH CHARACTER}': 8}",
    "{'a\nb': 8}",
    "{'a': 8\0}",
    "{'a\0b': 8}",
    "{1_000: 8}",
    "{01: 8}",
    "{'a': 9223372036854775808}",
    "{'a': " + "9" * 10_000 + "}",
    "{" + "9" * 10_000 + ": 8}",
    "{'a': ٣}",
    "(" * 1_000_000,
    "{" * 1_000_000,
    "[" * 500_000 + "]" * 500_000,
    "{" + "(" * 10_000 + "'a'" + ")" * 10_000 + ": 8}",
    "{" + "[]" * 500_000 + "}",
    "{" + "[]," * 300_000 + "}",
    "{" + "-" * 1_000_000 + "1: 8}",
    "{" + "- " * 20_000 + "1: 8}",
    "{" + "-1" * 30_000 + ": 8}",
    "{" + "1+1j" * 10_000 + ": 8}",
    "{" + "'a'" * 20_000 + "b: 8}",
    "{'" + "a" * 1_000_000,
    "{'a': 8" + " " * 1_000_000,
    "{(" + "'a', " * 200_000,
    "{('a'" + ", 1" * 300_000 + ": 8}",
    "{('a', " + "1" * 1_000_000,
    "{'" + "\\" * 1_000_001 + "': 8}",
    "{" + "('a', 1): 8, " * 80_000 + "oops: 1}",
]


@pytest.mark.parametrize("cell", GARBAGE, ids=lambda cell: ascii(cell[:24]) + f"-{len(cell)}")
@pytest.mark.timeout(20)
def test_garbage_raises_literal_error_only(cell: str) -> None:
    """Any other text raises LiteralError with a short reason, and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for read in READERS:
            reason = ""
            try:
                found = read(cell)
            except LiteralError as error:
                reason = str(error)
            if reason:
                assert len(reason) < 200
            else:
                assert_read_as_python_does(cell, found)


def assert_read_as_python_does(cell: str, found: list[Any]) -> None:
    """Assert that the result agrees with Python's own reading of the literal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = ast.literal_eval(cell.strip())
    names = [item[0] if isinstance(item, tuple) else item for item in found]
    "".join(names).encode()
    assert sorted(names) == sorted(unique(list(value)))


@given(st.text("{}[]()'\"\\,: ab01-.\nset+*/=;é\0eEjN", max_size=60))
@example("{'a'\n: 1}")
@example("{1:1}")
@example("{('a', 1) : 2}")
@example("{'a': 1,}")
@example("set()")
@example("{b'a': 1}")
@example("{'\\q': 1}")
@example("('a',)")
def test_what_is_read_is_what_python_understands(cell: str) -> None:
    """Any text is refused with LiteralError, or gives the keys of Python's own literal."""
    for read in READERS:
        try:
            found = read(cell)
        except LiteralError:
            continue
        if cell.strip() == "set()":
            assert found == []
        else:
            assert_read_as_python_does(cell, found)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_no_text_raises_anything_else(cell: str) -> None:
    """Any text at all, alone or in the place of a key or a size, raises LiteralError at most."""
    for form in ("%s", "{%s: 8}", "{'a': %s}", "{'%s': 8}", "{(%s): 8}"):
        text = form % cell
        for read in READERS:
            try:
                for item in read(text):
                    str(item).encode()
            except LiteralError:
                continue


@pytest.mark.parametrize(
    "cell",
    [
        "{{open({path!r}, 'w'): 8}}",
        "{{__import__('pathlib').Path({path!r}).touch(): 8}}",
        "{{'a': open({path!r}, 'w')}}",
        '{{f"{{open({path!r}, chr(119))}}": 8}}',
        "{{('a', open({path!r}, 'w')): 8}}",
        "{{x: 8 for x in [open({path!r}, 'w')]}}",
        "open({path!r}, 'w')",
        "[open({path!r}, 'w')]",
        "{{'a': {{open({path!r}, 'w')}}}}",
    ],
)
def test_a_cell_is_never_evaluated(cell: str, tmp_path: Path) -> None:
    """A cell that makes a file when it is evaluated is refused, and makes none."""
    path = tmp_path / "made"
    expression = cell.format(path=str(path))
    for read in READERS:
        with pytest.raises(LiteralError):
            read(expression)
    assert not path.exists()
    with suppress(TypeError):
        eval(expression)
    assert path.exists()  # it would have worked


def test_what_is_refused_does_not_depend_on_depth_of_the_stack() -> None:
    """Nesting is limited by us, not by Python: 19 tuples are a key, 25 are not."""

    def nested(n: int) -> Any:
        key: Any = "a"
        for _ in range(n):
            key = (key,)
        return key

    assert sizes(repr({nested(19): 8})) == [(str(nested(19)), 8)]
    with pytest.raises(LiteralError, match="nested"):
        sizes(repr({nested(25): 8}))


def test_keys_that_python_must_read_have_a_limit() -> None:
    """A long key in its usual form is read; one in another form is refused with the reason."""
    assert sizes(repr({"a" * 2_000_000: 8})) == [("a" * 2_000_000, 8)]
    assert sizes(repr({"é" * 1000: 8})) == [("é" * 1000, 8)]
    with pytest.raises(LiteralError, match="too long"):
        sizes(repr({"é" * MAX_KEY_CHARACTERS: 8}))


@given(
    st.dictionaries(KEYS | USUAL_KEYS, SIZES, min_size=1, max_size=3).map(repr)
    | st.text("{}()'\", :ab01-9\\\n", max_size=30)
    | st.from_regex(re.compile(ONE_KEY))
)
@example("{'': 0}")
@example("{'a': 8}\n")
@example("{('', -1): 007}")
@example("{'a': 1, 'a': 2}")
def test_patterns_for_whole_columns_agree_with_the_reader(cell: str) -> None:
    """The patterns, in Arrow's engine, match exactly the cells that `sizes` reads."""
    column = pa.array([cell], pa.string())
    match = pc.extract_regex(column, ONE_KEY)[0].as_py()
    if match is not None:
        assert sizes(cell) == [(match["text"] or match["pair"], int(match["nbytes"]))]
    if pc.match_substring_regex(column, USUAL)[0].as_py():
        assert dict(sizes(cell)) == {str(k): n for k, n in ast.literal_eval(tamed(cell)).items()}
    assert pc.match_substring_regex(column, USUAL)[0].as_py() or match is None


def tamed(cell: str) -> str:
    """Return a dict's text without leading zeros of its sizes, which Python has no literal of."""
    return re.sub(r": 0+(?=[0-9])", ": ", cell)


@given(st.lists(USUAL_KEYS, min_size=1, max_size=4, unique=True), SIZES)
def test_usual_keys_need_no_python(found: list[Any], n: int) -> None:
    """The pattern that spares us the slow way does match keys in their usual form."""
    plain = [k for k in found if not isinstance(k, str) or not set(k) & set("'\\")]
    if plain and n < 10**18:
        cell = pa.array([repr(dict.fromkeys(plain, n))])
        assert pc.match_substring_regex(cell, USUAL)[0].as_py()
        assert (pc.extract_regex(cell, ONE_KEY)[0].as_py() is not None) == (len(plain) == 1)
