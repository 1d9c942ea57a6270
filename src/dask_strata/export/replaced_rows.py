"""Rows of recorded tables without facts that were left out after the recording."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.config import read_settings
from dask_strata.schema import LEFT_OUT, RECORDED, Column
from dask_strata.store.key_texts import KEYS
from dask_strata.store.segments.frames import Batch
from dask_strata.store.segments.quoted_code import HINT, QuotedCode, frames_only
from dask_strata.store.segments.replacing import BY_ROW, Replacing

#: Fact of the job layer with the classes of facts that are not in the record.
_FACT = "dask-strata.left-out"

#: Facts of the script that the recorder does not write if a class is left out.
_SCRIPT_FACTS = {
    "code": {"text"},
    "errors": {"exception", "exception_message", "exception_file", "exception_line"},
}

#: Names of workers and hosts in ``stuck.reason``, which users may choose freely.
_RESTRICTION = re.compile(r"(it may run only on the (?:workers|hosts) )[^;]*")

_Rule = Callable[[Any], Any]


class ReplacedRows:
    """Replaces left-out facts in Arrow tables, as the recorder does before it writes rows.

    Parameters
    ----------
    classes : collection of str
        The classes, as in the setting ``leave-out``.
    names : mapping of str to str
        The names to search texts for: ``host`` or ``user`` by name.
    """

    def __init__(self, classes: Collection[str], names: Mapping[str, str]) -> None:
        self._classes = frozenset(classes)
        self.facts = Replacing(read_settings({}, leave_out=tuple(sorted(classes))), names)
        self._streams: dict[tuple[Any, ...], QuotedCode] = {}

    def of(self, name: str, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of a recorded table, or of the table of keys, with facts replaced.

        Parameters
        ----------
        name : str
            Name of the table.
        batches : iterable of pyarrow.Table
            All of its rows, in their order.
        """
        named: set[str] = set()
        processes: dict[str, None] = {}
        for batch in batches:
            rows = self._by_row(name, batch) if name in BY_ROW else batch
            if name == "job":
                processes |= dict.fromkeys(rows["process"].to_pylist())
                facts = zip(rows["name"].to_pylist(), rows["value"].to_pylist(), strict=True)
                named |= {each for n, v in facts if n == _FACT and v for each in v.split(", ")}
            for i, field in enumerate(rows.schema):
                rows = rows.set_column(i, field, self._column(name, field.name, rows))
            yield rows
        if processes:
            yield self._stated(processes, named, rows.schema)

    def _stated(self, processes: Iterable[str], known: set[str], schema: pa.Schema) -> pa.Table:
        """Return rows of ``job`` that name the left-out classes."""
        value = ", ".join(sorted(self._classes | known))
        facts = {"name": _FACT, "value": value, "source": "dask-strata export"}
        rows = [{**facts, "process": process} for process in processes]
        return pa.table(
            [pa.array([row.get(f.name) for row in rows], _plain(f.type)) for f in schema],
            schema.names,
        ).cast(schema)

    def _by_row(self, name: str, rows: pa.Table) -> pa.Table:
        """Replace values of facts, whose sensitivity depends on their name; remove some facts."""
        out = {fact for c in self._classes if name == "script" for fact in _SCRIPT_FACTS.get(c, ())}
        out |= {_FACT} if name == "job" else set()
        names = rows["name"].to_pylist()
        if out and name != "job":
            rows = rows.filter(pa.array([each not in out for each in names], pa.bool_()))
        columns = {column: rows[column].to_pylist() for column in rows.column_names}
        batch = self.facts.batch(Batch(name, len(rows), columns))
        return pa.table(
            [pa.array(batch.columns[f.name], _plain(f.type)) for f in rows.schema],
            rows.schema.names,
        ).cast(rows.schema)

    def _column(self, name: str, column: str, rows: pa.Table) -> Any:
        """Return a column with facts replaced."""
        texts = rows[column]
        if name == KEYS:
            return self._texts(texts, self.facts.text) if column == "key" else texts
        known = {each.name: each for each in RECORDED[name].all_columns}.get(column)
        if known is None or name in BY_ROW:
            return texts
        rule = self.facts.rule(name, column)
        if "code" in self._classes:
            if known.sensitivity == "code" and name != "stuck":  # as recorded without code
                return pa.nulls(len(rows), texts.type)
            if rule in {None, self.facts.text} and _may_quote(known):
                texts = self._without_code(name, column, rows)
        if (name, column) == ("stuck", "reason") and "hosts" in self._classes:
            texts = _mapped(texts, _without_restrictions)
        if rule is None:
            return texts
        return self._intervals(texts) if known.kind == "intervals" else self._texts(texts, rule)

    def _texts(self, column: Any, rule: _Rule) -> Any:
        """Return a column with the names in its texts replaced, or its texts as a whole."""
        # Most texts have no name: Arrow finds those that may have one.
        return _mapped(column, rule, self.facts.hint if rule == self.facts.text else None)

    def _intervals(self, column: Any) -> Any:
        chunks = []
        for chunk in column.chunks:
            parts = chunk.flatten()
            fields = [parts.field(i) for i in range(parts.type.num_fields)]
            source = parts.type.get_field_index("source")
            replaced = self._texts(pa.chunked_array([fields[source]]), self.facts.text)
            fields[source] = replaced.cast(parts.type.field(source).type).combine_chunks()
            structs = pa.StructArray.from_arrays(
                fields, fields=list(parts.type), mask=parts.is_null() if parts.null_count else None
            )
            lengths = pc.list_value_length(chunk).fill_null(0).to_numpy(zero_copy_only=False)
            offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
            mask = chunk.is_null() if chunk.null_count else None
            chunks.append(pa.ListArray.from_arrays(offsets, structs, chunk.type, mask=mask))
        return pa.chunked_array(chunks, column.type)

    def _without_code(self, name: str, column: str, rows: pa.Table) -> pa.ChunkedArray:
        """Return texts without the source lines that they quote."""
        if column == "traceback":
            return _mapped(rows[column], frames_only)
        if name != "output_lines":
            return _mapped(rows[column], lambda text: QuotedCode().text(text), HINT)
        found = []  # lines that quote source follow others of the same stream
        for row in rows.select(["process", "worker", "pid", "stream", "line"]).to_pylist():
            line = row.pop("line")
            stream = self._streams.setdefault(tuple(row.values()), QuotedCode())
            found.append(None if line is None else stream.text(line))
        return pa.chunked_array([pa.array(found, pa.string())])


def _may_quote(column: Column) -> bool:
    return column.sensitivity in ("error", "text") or column.name == "reason"


def _without_restrictions(text: str) -> str:
    return _RESTRICTION.sub(rf"\1{LEFT_OUT}", text)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _mapped(column: pa.ChunkedArray, rule: _Rule, hint: str | None = None) -> pa.ChunkedArray:
    """Return a column of texts, each distinct one replaced by a rule.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Texts, dictionary-encoded or not.
    rule : callable
        Returns the replacement of a text.
    hint : str, optional
        Pattern of RE2 that all texts match that the rule changes.
    """
    chunks = []
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        values = encoded.dictionary
        if hint is None:
            values = pa.array([rule(each) for each in values.to_pylist()], pa.string())
        else:
            found = pc.match_substring_regex(values, hint)
            new = [rule(each) for each in values.filter(found).to_pylist()]
            values = pc.replace_with_mask(values, found, pa.array(new, pa.string()))
        texts = values.take(encoded.indices)
        # Several texts may have one replacement, and a dictionary has each text once.
        is_encoded = pa.types.is_dictionary(column.type)
        chunks.append(texts.dictionary_encode().cast(column.type) if is_encoded else texts)
    return pa.chunked_array(chunks, column.type)
