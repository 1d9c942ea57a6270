"""Our settings in Dask's configuration, under ``dask_strata``: typed, documented, checked.

They can be set like any of Dask's: in a YAML file, as ``DASK_DASK_STRATA__…`` variables,
with ``dask.config.set`` or as options of ``dask-strata record``.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dask_strata.errors import SettingError

NAMESPACE = "dask_strata"

logger = logging.getLogger(NAMESPACE)

_told: set[str] = set()


def _seconds(value: Any) -> float:
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(value, default="s"))
    except (ValueError, TypeError, KeyError, IndexError):
        raise ValueError("is no time; examples: 100ms, 1s") from None
    if not 0.01 <= seconds <= 3600:  # noqa: PLR2004
        raise ValueError("must be between 10 ms and 1 hour")
    return seconds


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "yes", "on", "1"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "no", "off", "0"):
        return False
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise ValueError("must be true or false")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return str(value)


def _tap(value: Any) -> str:
    if value not in ("auto", "plugin"):
        raise ValueError("must be auto or plugin")
    return str(value)


@dataclass(frozen=True)
class Setting:
    """One setting: its name in Dask's configuration, default, reader and meaning."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    meaning: str


SETTINGS: tuple[Setting, ...] = (
    Setting("enabled", default=True, read=_flag, meaning="Whether a preload records at all."),
    Setting("runs", "runs", _text, "Folder that runs are made in."),
    Setting("name", None, _text, "Name of the run; the script's name by default."),
    Setting(
        "flush-interval",
        "100ms",
        _seconds,
        "How often records reach the operating system: what a killed process loses at most.",
    ),
    Setting("sample-interval", "500ms", _seconds, "How often state over time is sampled."),
    Setting(
        "code",
        default=True,
        read=_flag,
        meaning="Whether script text and source lines are recorded.",
    ),
    Setting(
        "settings",
        default=True,
        read=_flag,
        meaning="Whether Dask's configuration and package versions are recorded.",
    ),
    Setting(
        "attempts",
        default=True,
        read=_flag,
        meaning="Whether CPU, I/O, memory and faults of each run of a task are recorded.",
    ),
    Setting(
        "inputs",
        default=True,
        read=_flag,
        meaning="Whether it is recorded what tasks say they read, and which files they open.",
    ),
    Setting(
        "tap",
        "auto",
        _tap,
        "How transitions are taken: auto (from Dask's own logs where they are as expected, "
        "which costs least) or plugin (public plugin calls only).",
    ),
    Setting(
        "compact",
        default=True,
        read=_flag,
        meaning="Whether `dask-strata record` ends by writing Parquet.",
    ),
    Setting("session", None, _text, "Set by `dask-strata record` to find its runs again."),
)


@dataclass(frozen=True)
class Settings:
    """The settings with their values; intervals are in seconds."""

    enabled: bool
    runs: str
    name: str | None
    flush_interval: float
    sample_interval: float
    code: bool
    settings: bool
    attempts: bool
    inputs: bool
    tap: str
    compact: bool
    session: str | None

    def as_config(self) -> dict[str, Any]:
        """Return them as they would stand in Dask's configuration."""
        return {f.name.replace("_", "-"): getattr(self, f.name) for f in fields(self)}


def read_settings(config: Mapping[str, Any] | None = None, **overrides: Any) -> Settings:
    """Return the settings that are in force.

    Parameters
    ----------
    config : mapping, optional
        What stands under ``dask_strata`` in the configuration; Dask's own by default.
    **overrides
        Settings by name (with ``_`` for ``-``) that win over the configuration; None is
        no override.

    Raises
    ------
    SettingError
        A value cannot be used, or a setting is unknown. Of one in Dask's own configuration,
        which may be meant for another version, there is only a warning.
    """
    lenient = config is None
    if config is None:
        import dask

        found = dask.config.get(NAMESPACE, default=None) or dask.config.get(
            NAMESPACE.replace("_", "-"), default=None
        )
        config = found or {}
    if not isinstance(config, Mapping):
        raise SettingError(
            f"{NAMESPACE} in Dask's configuration must be a mapping, not {config!r}."
        )
    known = {setting.name: setting for setting in SETTINGS}
    given = {str(name).replace("_", "-"): value for name, value in config.items()}
    given |= {n.replace("_", "-"): v for n, v in overrides.items() if v is not None}
    for name in [name for name in given if name not in known]:
        close = difflib.get_close_matches(name, known, n=1)
        hint = (
            f"Did you mean {NAMESPACE}.{close[0]}?"
            if close
            else f"Known settings: {', '.join(known)}."
        )
        problem = f"Unknown setting {NAMESPACE}.{name}."
        if not lenient or name.replace("-", "_") in overrides:
            raise SettingError(problem, hint=hint)
        if name not in _told and "session" not in given:  # `dask-strata record` has said it
            _told.add(name)
            logger.warning("dask-strata: %s It is left out. %s", problem, hint)
    values = {}
    for name, setting in known.items():
        value = given.get(name, setting.default)
        try:
            values[name.replace("-", "_")] = setting.read(value)
        except (ValueError, TypeError, LookupError) as error:
            raise SettingError(f"{NAMESPACE}.{name}: {value!r} {error}.") from None
    return Settings(**values)
