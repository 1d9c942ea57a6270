"""Sizes, rates and durations: 3 significant digits, and the same text in Python and in the page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_strata.report.page.templates import asset
from dask_strata.report.words import duration, number, rate, size, visible
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium

UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}

#: Seconds in each unit of a duration.
SECONDS = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600}

#: Any number of bytes that 64 bits can count, also just below and above each power of 2.
SIZES = st.one_of(
    st.integers(0, 2**63),
    st.builds(lambda power, d: max(0, 2**power + d), st.integers(0, 62), st.integers(-700, 700)),
    st.floats(1e-3, 2**63),
)
TIMES = st.one_of(
    st.floats(1e-9, 1e9),
    st.integers(0, 10**15).map(lambda ns: ns / 1e9),
    st.builds(
        lambda n, d: max(0, n + d), st.sampled_from([0.1, 1, 60, 100, 3600]), st.floats(-1, 1)
    ),
)

#: Values around each change of a unit or of the number of digits, where rounding carries.
EDGES = [
    *(2.0**power * factor for power in range(64) for factor in (1, 0.9995, 0.99951, 1.00049)),
    *(10.0**power * factor for power in range(-8, 15) for factor in (1, 0.9995, 0.99949, 1.125)),
    *(59.99, 60, 99.949, 99.95, 100, 3599.4, 3599.5, 3600, 7169.9, 7170, 86400, 0.09995, 0.0999),
    *(1152, 1.125, 2.5, 0.125, 1023, 1023.5, 1024 * 1023.5, 10**6 - 1),
]


def digits(text: str) -> str:
    """Return the significant digits of a number's text."""
    return text.replace(".", "").lstrip("-0")


@given(SIZES)
@example(1023)
@example(1024 * 1024 - 1)
@example(2**40 - 1)
def test_a_size_is_rounded_and_below_1024(nbytes: float) -> None:
    """A size has 3 digits, is below 1024 of its unit, and is right to half its last digit."""
    text, unit = size(nbytes).split(" ")
    assert float(text) < 1024
    assert len(digits(text)) <= (4 if float(text) >= 1000 else 3)
    whole = 1024 ** UNITS[unit]
    assert math.isclose(float(text) * whole, nbytes, rel_tol=0.0051, abs_tol=1e-8)
    assert nbytes >= 0.999 * whole or unit == "B"


@given(TIMES)
@example(0.09996)
@example(99.96)
@example(3599.7)
def test_a_duration_is_rounded_and_below_its_next_unit(seconds: float) -> None:
    """A duration has 3 digits or 2 units, and is right to half its last digit."""
    text = duration(seconds)
    parts = re.findall(r"([\d.]+(?:e-\d+)?) (ms|s|min|h)", text)
    assert " ".join(f"{n} {unit}" for n, unit in parts) == text
    assert math.isclose(
        sum(float(n) * SECONDS[unit] for n, unit in parts), seconds, rel_tol=0.0084, abs_tol=1e-11
    )
    for n, unit in parts:
        assert float(n) < {"ms": 100, "s": 100, "min": 60, "h": math.inf}[unit]
        assert unit == "h" or len(digits(n.partition("e")[0])) <= 3


@given(st.integers(1, 2**63), st.floats(1e-9, 1e9))
def test_a_rate_is_in_one_unit(nbytes: int, seconds: float) -> None:
    """A rate is in MiB/s, and has no exponent unless it is next to nothing."""
    text = rate(nbytes, seconds)
    exact = nbytes / seconds / 2**20
    assert text.endswith(" MiB/s")
    assert math.isclose(float(text.removesuffix(" MiB/s")), exact, rel_tol=0.0051)
    assert "e" not in text.removesuffix(" MiB/s") or not 1e-9 < exact < 1e15


@given(st.one_of(TIMES, SIZES))
def test_a_negative_value_has_a_sign(value: float) -> None:
    """A difference is spelled as its amount, with a sign."""
    for spell in (size, duration):
        assert spell(-value) == (f"-{spell(value)}" if value else spell(0))


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_unknown_is_a_dash(unknown: float | None) -> None:
    """An unknown value is a dash, and is not 0."""
    assert [size(unknown), duration(unknown), rate(unknown, 1), rate(1, unknown)][:3] == ["–"] * 3
    assert rate(1, None) == rate(1, 0) == "–"


#: Unicode's default ignorable code points, except the joiners and variation selectors, and the
#: blank pattern of Braille.
INVISIBLE = [
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a\u202e\u2060\u206f",
    "\u2800\u3164\ufeff\uffa0\ufff0\ufff8\U0001bca0\U0001d173\U000e0000\U000e0100\U000e0fff",
]

#: Texts of languages and emoji, with joiners and variation selectors.
SPELLINGS = ["naïve ∑ 東京", "می\u200cخواهم", "क्\u200dष", "👩\u200d🔬", "❤\ufe0f", "한국어", "⠃⠗"]


@pytest.mark.parametrize("character", "".join(INVISIBLE))
def test_invisible_characters_are_spelled_out(character: str) -> None:
    """A text that looks like another one shows its difference."""
    assert visible(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize("text", SPELLINGS)
def test_languages_and_emoji_are_unchanged(text: str) -> None:
    """Joiners and variation selectors are part of spellings."""
    assert visible(text) == text


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    """A browser without a page."""
    if not CHROMIUM or not DRIVER:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    yield from chromium()


SPELLED: dict[str, Callable[[Any], str]] = {
    "sizeText": size,
    "durationText": duration,
    "rateText": lambda value: rate(value, 1),
    "numberText": number,
}


@settings(max_examples=30)
@given(st.lists(st.one_of(SIZES, TIMES), min_size=1, max_size=300))
@example(EDGES)
@example([-value for value in EDGES])
def test_the_page_spells_numbers_alike(page: Browser, values: list[float]) -> None:
    """The page's script returns the text that Python returns."""
    values = [float(value) for value in values]
    found = page.js(
        f"{asset('numbers.js')}\nconst functions = [{', '.join(SPELLED)}];"
        "return functions.map((spell) => arguments[0].map(spell))",
        values,
    )
    for (name, spell), texts in zip(SPELLED.items(), found, strict=True):
        expected = [spell(value) for value in values]
        # A longer duration has more digits than JavaScript prints.
        wrong = [
            (value, text, right)
            for value, text, right in zip(values, texts, expected, strict=True)
            if text != right and not (name == "durationText" and abs(value) > 1e15)
        ]
        assert not wrong, f"{name}: value, page, Python: {wrong[:5]}"
