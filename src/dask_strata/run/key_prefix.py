"""Dask's prefixes of keys, as a function of SQL.

Dask derives the prefix of a task from its key (`dask.utils.key_split`), and the submission of a
task records it. Tasks that clients submitted before the recording have only their key.
"""

from __future__ import annotations

#: The first text in a tuple, as Python writes it; there is none if it has an escape sequence.
_FIRST_TEXT = r"""^\(*b?(?:''([^''\\]*)''|"([^"\\]*)").*$"""

#: A tuple that begins with a number or a constant.
_FIRST_OTHER = r"^\(+(?:-?[0-9]|None\b|True\b|False\b|nan\b|-?inf\b)"

#: Statements that define ``key_prefix(key, key_type)``; it is null where it is not certain, as for
#: the text of a key with the character U+0001, which is the mark of an empty word.
#: DuckDB inserts an argument's text at each use of it, and compiles each pattern: uses are few.
KEY_PREFIX_MACROS = (
    # The first word of a key; a mark if it is empty, of which Dask makes the prefix Other.
    r"""
    create or replace temp macro _first_word(word) as
        case when word = '' then chr(1) when regexp_matches(word, '^\p{L}') then word
             else trim(split_part(word, ',', 1), '_''()"') end
    """,
    # The words that follow: of letters only, but not of eight letters of which the first is one of
    # a to f, which Dask takes for a hash.
    r"""
    create or replace temp macro _next_words(key) as
        regexp_extract(regexp_extract(key || '-', '^[^-]*((?:-\p{L}+)*)-', 1) || '-',
                       '^((?:-(?:[^-]{1,7}|[^a-f-][^-]{7}|[^-]{9,}))*)-', 1)
    """,
    # Long names of objects as Python writes them have the name of their class.
    r"""
    create or replace temp macro _named(words) as
        regexp_replace(regexp_replace(regexp_replace(
            words, '^[a-f0-9]{32}$', 'data'),
            '(?s)^<[<>]*\s*(?:[^\s.]*\.)*([^\s.]*?)(?:[<>]*|\s.*)$', '\1'),
            '(?s)^(?:\x01.*)?$', 'Other')
    """,
    """
    create or replace temp macro _split_key(key) as
        _named(_first_word(split_part(key, '-', 1)) || _next_words(key))
    """,
    rf"""
    create or replace temp macro key_prefix(key, key_type) as
        case when key_type in ('int', 'float', 'bool', 'NoneType')
               or key_type = 'tuple' and regexp_matches(key, '{_FIRST_OTHER}') then 'Other'
             when key_type = 'str' and not contains(key, chr(1))
               or key_type in ('tuple', 'bytes') and regexp_matches(key, '(?s){_FIRST_TEXT}')
             then _split_key(case when key_type = 'str' then key
                                  else regexp_replace(key, '(?s){_FIRST_TEXT}', '\1\2') end) end
    """,
)
