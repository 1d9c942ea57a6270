"""Completion in bash, whose words are not those of the command line.

Bash ends words also at colons and quotes, and inserts completions as they are. Keys of tasks have
spaces, quotes and brackets, and those of a run from elsewhere may have any characters: completions
are quoted, and left out if they would not be inert between quotes.
"""

from __future__ import annotations

import os
import re
import shlex

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    split_arg_string,
)

from dask_strata.report.words import visible

_SOURCE = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local completion type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        elif [[ $type == plain ]]; then
            COMPREPLY+=("$value")
        fi
    done < <(COMP_WORDS="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

#: Texts that mean themselves to bash, and characters that have a meaning between double quotes.
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_ACTIVE = set('"$`\\!')


class StrataBash(BashComplete):
    """Completion in bash, from the text of the line before the cursor."""

    source_template = _SOURCE

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the unfinished one."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        if not words or (line[-1:].isspace() and not _open_quote(line)):
            return words, ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return the text that replaces bash's current word; of the type ``none`` if it may not."""
        line = os.environ["COMP_WORDS"]
        text = item.value if item.type != "plain" else _inserted(item.value, line)
        return f"{item.type},{text}" if text is not None else "none,"


def register() -> None:
    """Replace click's completion for bash."""
    add_completion_class(StrataBash)


def _inserted(value: str, line: str) -> str | None:
    """Return a value as bash has to insert it at the end of a line; None if it cannot be quoted."""
    if visible(value) != value:
        return None
    quote = _open_quote(line)
    if quote:  # bash replaces the text behind it, and closes it
        return value if not set(value) & (_ACTIVE if quote == '"' else {"'"}) else None
    if _PLAIN.fullmatch(value):
        typed = re.split(r"\s", line)[-1]
        kept = max(typed.rfind(":"), typed.rfind("=")) + 1  # bash's word starts behind it
        return value[kept:] if value.startswith(typed) else value
    if not set(value) & _ACTIVE:
        return f'"{value}"'
    return f"'{value}'" if "'" not in value else None


def _open_quote(line: str) -> str:
    """Return the quote that is open at the end of a line; empty if none is.

    >>> [_open_quote(line) for line in ("a 'b", 'a "b c', "a 'b'")]
    ["'", '"', '']
    """
    for quote in ("'", '"'):
        try:
            shlex.split(line)
        except ValueError:
            try:
                shlex.split(line + quote)
            except ValueError:
                continue
            return quote
    return ""
