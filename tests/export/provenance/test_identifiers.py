"""Identifiers of any text."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from dask_strata.export.provenance.identifiers import encode, encode_key, iri, plain

#: What PROV-N and Turtle both accept as a local name without an escape.
LOCAL = re.compile(r"(?:[A-Za-z0-9_]|%[0-9A-F]{2})(?:[A-Za-z0-9_.-]|%[0-9A-F]{2})*(?<!\.)")

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)


@given(texts)
def test_an_identifier_is_valid_and_can_be_undone(text: str) -> None:
    """Also with surrogates, quotes and line ends."""
    found = encode(text)
    assert LOCAL.fullmatch(found)
    if text:
        assert unquote_to_bytes(found) == text.encode("utf-8", "surrogatepass")


@given(texts, texts)
def test_different_texts_have_different_identifiers(a: str, b: str) -> None:
    """So do keys of different types."""
    assert (encode(a) == encode(b)) == (a == b) or "\0" in (a + b)
    assert encode_key(a, "str") != encode_key(a, "int")
    assert LOCAL.fullmatch(encode_key(a, b))


def test_long_texts_are_shortened() -> None:
    """They still differ if only their ends do."""
    a, b = "x" * 10_000 + "a", "x" * 10_000 + "b"
    assert len(encode(a)) < 200
    assert encode(a) != encode(b)
    assert LOCAL.fullmatch(encode(a))


@given(texts)
def test_iris_have_no_character_that_needs_an_escape(text: str) -> None:
    """A path can be undone."""
    for uri in (text, f"/{text}", f"s3://{text}"):
        assert re.fullmatch(r"[!#$%&'()*+,./0-9:;=?@A-Z_a-z~-]+", iri(uri))
    path = urlsplit(iri(f"/{text}")).path
    assert unquote_to_bytes(path) == f"/{text}".encode("utf-8", "surrogatepass")


@given(texts)
def test_plain_texts_are_utf8_without_controls(text: str) -> None:
    """Line ends and tabs remain."""
    found = plain(text)
    assert len(found) == len(text)
    found.encode()
    assert plain("a\n\tb") == "a\n\tb"
