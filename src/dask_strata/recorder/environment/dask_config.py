"""The effective configuration of a process, with the source of each value, and its packages."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_strata.config import NAMESPACE
from dask_strata.recorder.pipeline.redact import is_secret_name, redact_text, redact_value
from dask_strata.schema import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterator

INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
_STREAM = f"{NAMESPACE}.stream".replace("_", "-")
UNREADABLE = "(unreadable)"
_DEEPEST = 32
#: Attempts at parsing a variable without garbage collection, which another thread may enable.
_ATTEMPTS = 10
_SUFFIXES = (".json", ".yaml", ".yml")


class Setting(NamedTuple):
    """An effective setting.

    Attributes
    ----------
    name : str
        Its dotted name.
    value : str
        Its value as JSON, without secrets.
    source : str
        The variable or file that sets it, ``inherited``, ``default`` or ``set at run time``.
    """

    name: str
    value: str
    source: str


class _Layer(NamedTuple):
    """The values in one source of configuration, as JSON by normal name."""

    source: str
    values: dict[str, str]


def effective_settings(
    config: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> list[Setting]:
    """Return Dask's configuration in this process, without changing it.

    Parameters
    ----------
    config : mapping, optional
        The configuration; Dask's own by default.
    environ : mapping, optional
        Environment variables; those of this process by default.

    Returns
    -------
    list of Setting
        Sorted by dotted name, which is spelled as in Dask's defaults or else as it was set. The
        source is the first of these that has the same value: an environment variable,
        ``inherited``, a file (the last one first), ``default``; otherwise it is ``set at run
        time``. A file or variable that cannot be parsed makes a row ``error.config``.
    """
    import dask.config

    with dask.config.config_lock:
        pairs = list(_flat(dask.config.config if config is None else config))
    errors: list[Setting] = []
    layers = list(_layers(dict(os.environ if environ is None else environ), errors))
    spelled = {_normal(name): name for name, _ in _flat(dask.config.merge(*dask.config.defaults))}
    found = []
    for name, value in pairs:
        text = _json(value)
        normal = _normal(name)
        source = next(
            (layer.source for layer in layers if layer.values.get(normal) == text),
            "set at run time",
        )
        shown = _writable(spelled.get(normal, name))
        found.append(Setting(shown, _shown(name, value), _writable(source)))
    return sorted(found) + errors


def _layers(environ: Mapping[str, str], errors: list[Setting]) -> Iterator[_Layer]:
    """Yield the sources of configuration, from the highest precedence to the defaults."""
    import dask.config

    for variable, text in environ.items():
        if variable.startswith("DASK_") and variable != INHERITED:
            name = variable[len("DASK_") :].lower().replace("__", ".")
            yield _Layer(variable, _texts(_flat(interpreted(text), name)))
    if INHERITED in environ:
        try:
            yield _Layer("inherited", _texts(_flat(dask.config.deserialize(environ[INHERITED]))))
        except (ValueError, RecursionError) as error:
            errors.append(_error(error, INHERITED))
    files = [file for path in dask.config.paths for file in _files(str(path), errors)]
    for file in reversed(files):
        yield from _file(file, errors)
    yield _Layer("default", _texts(_flat(dask.config.merge(*dask.config.defaults))))


def interpreted(text: str) -> Any:
    """Return the value that Dask reads from the text of an environment variable.

    Parameters
    ----------
    text : str
        The variable's text.
    """
    import dask.config

    with contextlib.suppress(SystemError):
        return dask.config.interpret_value(text)
    # Python 3.11.7, for one, counts the depth of syntax trees for all threads together. It raises
    # this error if garbage collection, within the parser, lets another thread parse code.
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(SystemError), _without_garbage_collection():
            return dask.config.interpret_value(text)
    with _without_garbage_collection():
        return dask.config.interpret_value(text)


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _files(path: str, errors: list[Setting]) -> list[str]:
    """Return the configuration files at a path, in the order in which Dask reads them."""
    try:
        if os.path.isdir(path):  # noqa: PTH112 - Dask keeps paths as text
            names = sorted(os.listdir(path))  # noqa: PTH208 - as above
            return [f"{path}{os.sep}{name}" for name in names if name.lower().endswith(_SUFFIXES)]
    except OSError as error:
        errors.append(_error(error, path))
        return []
    return [path] if os.path.exists(path) else []  # noqa: PTH110 - as above


def _file(path: str, errors: list[Setting]) -> Iterator[_Layer]:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - Dask keeps paths as text
            content = yaml.safe_load(file)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        errors.append(_error(error, path))
        return
    if isinstance(content, Mapping):
        yield _Layer(path, _texts(_flat(content)))


def _error(error: BaseException, source: str) -> Setting:
    text = _json(redact_text(f"{type(error).__name__}: {error}"))
    return Setting("error.config", text, _writable(source))


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values; an empty mapping is a value of its own."""
    if not isinstance(value, Mapping) or (name and not value) or depth > _DEEPEST:
        yield name, value
        return
    for key, inner in list(value.items()):
        yield from _flat(inner, f"{name}.{_word(key)}" if name else _word(key), depth + 1)


def _word(key: Any) -> str:
    return key if isinstance(key, str) else _safe_repr(key)


def _texts(pairs: Iterator[tuple[str, Any]]) -> dict[str, str]:
    return {_normal(name): _json(value) for name, value in pairs}


def _normal(name: str) -> str:
    """Return the name that all spellings and old names of a setting share in Dask."""
    import dask.config

    plain = name.replace("_", "-")
    renamed = dask.config.deprecations.get(plain) or plain
    return str(renamed).replace("_", "-")


def _shown(name: str, value: Any) -> str:
    """Return a value as JSON, without secrets."""
    if value is None or isinstance(value, bool):
        return _json(value)
    if _normal(name) == _STREAM and isinstance(value, str):
        value = value.partition("?")[0]  # options of a broker may be secret
    return _json(REDACTED if is_secret_name(name) else redact_value(value, _DEEPEST))


def _json(value: Any) -> str:
    """Return valid JSON for any value at all."""
    try:
        return json.dumps(value, default=_safe_repr, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # keys without JSON, NaN, cycles
        return json.dumps(_safe_repr(value))


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a user's class can raise any error
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def _writable(text: str) -> str:
    """Return a text that can be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def installed_packages() -> list[tuple[str, str]]:
    """Return normal name and version of each installed distribution, sorted by name.

    Of several with the same name, the first one on the import path counts, as for imports. A
    distribution with unreadable metadata has the name of its folder and the version
    ``(unreadable)``.
    """
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name, version = _identity(distribution)
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return sorted(found.items())


def _identity(distribution: metadata.Distribution) -> tuple[str, str]:
    # The folder's name contains name and version. Reading the metadata of some hundred packages
    # would take about 0.1 s in every worker.
    path: Any = getattr(distribution, "_path", None)
    stem, dot, _ = getattr(path, "name", "").rpartition(".dist-info")
    name, dash, version = stem.partition("-")
    if dot and dash and version and "-" not in version and Path(path, "METADATA").is_file():
        return _writable(name), _writable(version)
    return _from_metadata(distribution)


def _from_metadata(distribution: metadata.Distribution) -> tuple[str, str]:
    name: str | None = None
    version: str | None = None
    try:
        name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    except Exception:  # noqa: BLE001 - on broken files, the error depends on the version of Python
        version = UNREADABLE
    if not isinstance(name, str) or not name:
        folder = getattr(getattr(distribution, "_path", None), "name", "")
        name = folder.partition("-")[0].removesuffix(".dist").removesuffix(".egg")
    return _writable(str(name)), _writable(str(version)) if version else UNREADABLE
