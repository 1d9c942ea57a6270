"""A PROV document in sections, and its three notations, which are written piece by piece."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TextIO

from dask_strata.export.provenance.identifiers import plain

_PROV = "http://www.w3.org/ns/prov#"
_XSD = "http://www.w3.org/2001/XMLSchema#"

#: A value of an attribute: whole numbers are ``xsd:long``, others ``xsd:double``.
Value = str | int | float | bool


class Element(NamedTuple):
    """An entity, activity or agent.

    Attributes
    ----------
    id : str
        Qualified name.
    label : str
        Text for people.
    type : str or None
        Qualified name of its type.
    start, stop : str or None
        Moments of an activity, in ISO 8601.
    attributes : sequence of (str, value)
        Qualified names and values; values that are None are left out.
    """

    id: str
    label: str
    type: str | None = None
    start: str | None = None
    stop: str | None = None
    attributes: Sequence[tuple[str, Value | None]] = ()


class Relation(NamedTuple):
    """A relation between two elements.

    Attributes
    ----------
    subject, object : str
        Qualified names, in the order of PROV-N.
    plan : str or None
        The plan of an association.
    """

    subject: str
    object: str
    plan: str | None = None


#: Kinds of elements with the class of PROV-O.
ELEMENTS = {"agent": "Agent", "entity": "Entity", "activity": "Activity"}

#: Kinds of relations: attributes of PROV-JSON, further arguments of PROV-N, property of PROV-O.
RELATIONS = {
    "used": ("prov:activity", "prov:entity", ", -", "used"),
    "wasGeneratedBy": ("prov:entity", "prov:activity", ", -", "wasGeneratedBy"),
    "wasDerivedFrom": (
        "prov:generatedEntity",
        "prov:usedEntity",
        ", -, -, -",
        "wasDerivedFrom",
    ),
    "wasAssociatedWith": ("prov:activity", "prov:agent", ", -", "wasAssociatedWith"),
    "actedOnBehalfOf": ("prov:delegate", "prov:responsible", ", -", "actedOnBehalfOf"),
    "wasStartedBy": ("prov:activity", "prov:starter", "", ""),
}


class Notation(ABC):
    """Writes a document, section by section.

    Parameters
    ----------
    file : text file
        Is written to.
    """

    suffix: ClassVar[str]
    media_type: ClassVar[str]

    def __init__(self, file: TextIO) -> None:
        self.file = file

    @abstractmethod
    def begin(self, prefixes: Mapping[str, str]) -> None:
        """Write the head, with the namespace of each prefix."""

    @abstractmethod
    def elements(self, kind: str, found: Iterable[Element]) -> int:
        """Write the elements of a kind; return their number."""

    @abstractmethod
    def relations(self, kind: str, found: Iterable[Relation]) -> int:
        """Write the relations of a kind; return their number."""

    @abstractmethod
    def end(self) -> None:
        """Write the end of the document."""


class ProvJson(Notation):
    """PROV-JSON."""

    suffix = ".prov.json"
    media_type = "application/json"

    def begin(self, prefixes: Mapping[str, str]) -> None:
        """Write the head, with the namespace of each prefix."""
        self.file.write('{\n"prefix": ' + json.dumps(dict(prefixes)))

    def elements(self, kind: str, found: Iterable[Element]) -> int:
        """Write the elements of a kind; return their number."""
        return self._section(kind, (f'"{e.id}": {{{_members(e)}}}' for e in found))

    def relations(self, kind: str, found: Iterable[Relation]) -> int:
        """Write the relations of a kind; return their number."""
        first, second = RELATIONS[kind][:2]
        return self._section(
            kind,
            (
                f'"_:{kind}{n}": {{"{first}": "{r.subject}", "{second}": "{r.object}"'
                + ("}" if r.plan is None else f', "prov:plan": "{r.plan}"}}')
                for n, r in enumerate(found, 1)
            ),
        )

    def _section(self, kind: str, members: Iterable[str]) -> int:
        n = 0
        for n, member in enumerate(members, 1):
            self.file.write(f',\n"{kind}": {{\n' if n == 1 else ",\n")
            self.file.write(member)
        if n:
            self.file.write("\n}")
        return n

    def end(self) -> None:
        """Write the end of the document."""
        self.file.write("\n}\n")


def _members(element: Element) -> str:
    parts = []
    if element.start is not None:
        parts.append(f'"prov:startTime": "{element.start}"')
    if element.stop is not None:
        parts.append(f'"prov:endTime": "{element.stop}"')
    if element.type is not None:
        parts.append(f'"prov:type": {{"$": "{element.type}", "type": "prov:QUALIFIED_NAME"}}')
    parts.append(f'"prov:label": {_json(element.label)}')
    values: dict[str, list[str]] = {}
    for name, value in element.attributes:
        if value is not None:
            values.setdefault(name, []).append(_json(value))
    for name, texts in values.items():
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        parts.append(f'"{name}": {text}')
    return ", ".join(parts)


def _json(value: Value) -> str:
    if isinstance(value, str):
        return json.dumps(plain(value))
    text, kind = _typed(value)
    return f'{{"$": "{text}", "type": "{kind}"}}'


def _typed(value: float) -> tuple[str, str]:
    """Return the text and the type of a value that is no text."""
    if isinstance(value, bool):
        return ("true" if value else "false"), "xsd:boolean"
    if isinstance(value, int):
        return str(value), "xsd:long"
    return (repr(value) if math.isfinite(value) else str(value).upper()), "xsd:double"


class ProvN(Notation):
    """PROV-N."""

    suffix = ".provn"
    media_type = "text/provenance-notation"

    def begin(self, prefixes: Mapping[str, str]) -> None:
        """Write the head, with the namespace of each prefix."""
        self.file.write("document\n")
        self.file.writelines(f"  prefix {name} <{iri}>\n" for name, iri in prefixes.items())
        self.file.write("  \n")

    def elements(self, kind: str, found: Iterable[Element]) -> int:
        """Write the elements of a kind; return their number."""
        n = 0
        for n, element in enumerate(found, 1):  # noqa: B007  the last is their number
            times = f", {element.start or '-'}, {element.stop or '-'}" if kind == "activity" else ""
            pairs = [] if element.type is None else [f"prov:type='{element.type}'"]
            pairs.append(f"prov:label={_quoted(element.label)}")
            pairs += [f"{name}={_n(v)}" for name, v in element.attributes if v is not None]
            self.file.write(f"  {kind}({element.id}{times}, [{', '.join(pairs)}])\n")
        return n

    def relations(self, kind: str, found: Iterable[Relation]) -> int:
        """Write the relations of a kind; return their number."""
        n = 0
        rest = RELATIONS[kind][2]
        for n, relation in enumerate(found, 1):  # noqa: B007  the last is their number
            if kind == "wasStartedBy":
                text = f"{relation.subject}, -, {relation.object}, -"
            elif relation.plan is not None:
                text = f"{relation.subject}, {relation.object}, {relation.plan}"
            else:
                text = f"{relation.subject}, {relation.object}{rest}"
            self.file.write(f"  {kind}({text})\n")
        return n

    def end(self) -> None:
        """Write the end of the document."""
        self.file.write("endDocument\n")


def _quoted(text: str) -> str:
    text = plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{text}"""' if "\n" in text or "\r" in text else f'"{text}"'


def _n(value: Value) -> str:
    if isinstance(value, str):
        return _quoted(value)
    text, kind = _typed(value)
    return f'"{text}" %% {kind}'


class ProvO(Notation):
    """PROV-O in Turtle."""

    suffix = ".ttl"
    media_type = "text/turtle"

    def begin(self, prefixes: Mapping[str, str]) -> None:
        """Write the head, with the namespace of each prefix."""
        standard = {
            "prov": _PROV,
            "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
            "xsd": _XSD,
        }
        for name, namespace in (standard | dict(prefixes)).items():
            self.file.write(f"@prefix {name}: <{namespace}> .\n")
        self.file.write("\n")

    def elements(self, kind: str, found: Iterable[Element]) -> int:
        """Write the elements of a kind; return their number."""
        n = 0
        for n, element in enumerate(found, 1):  # noqa: B007  the last is their number
            parts = [f"{element.id} a prov:{ELEMENTS[kind]}"]
            if element.type is not None:
                parts[0] += f", {element.type}"
            if element.start is not None:
                parts.append(f'prov:startedAtTime "{element.start}"^^xsd:dateTime')
            if element.stop is not None:
                parts.append(f'prov:endedAtTime "{element.stop}"^^xsd:dateTime')
            parts.append(f"rdfs:label {_turtle(element.label)}")
            parts += [f"{name} {_turtle(v)}" for name, v in element.attributes if v is not None]
            self.file.write(" ;\n    ".join(parts) + " .\n")
        return n

    def relations(self, kind: str, found: Iterable[Relation]) -> int:
        """Write the relations of a kind; return their number."""
        n = 0
        for n, relation in enumerate(found, 1):  # noqa: B007  the last is their number
            if kind == "wasStartedBy":
                text = f"prov:qualifiedStart [ a prov:Start ; prov:hadActivity {relation.object} ]"
            elif relation.plan is not None:
                text = (
                    f"prov:qualifiedAssociation [ a prov:Association ; prov:agent "
                    f"{relation.object} ; prov:hadPlan {relation.plan} ]"
                )
            else:
                text = f"prov:{RELATIONS[kind][3]} {relation.object}"
            self.file.write(f"{relation.subject} {text} .\n")
        return n

    def end(self) -> None:
        """Write the end of the document."""


def _turtle(value: Value) -> str:
    if isinstance(value, str):
        return json.dumps(plain(value), ensure_ascii=False)
    text, kind = _typed(value)
    return f'"{text}"^^{kind}'
