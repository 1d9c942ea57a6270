"""Our settings in Dask's configuration, under ``dask_strata``: typed, documented, checked.

They can be set like any of Dask's: in a YAML file, as ``DASK_DASK_STRATA__…`` variables,
with ``dask.config.set`` or as options of ``dask-strata record``.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dask_strata.errors import SettingError

NAMESPACE = "dask_strata"

try:
    VERSION = version("dask-strata")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0+unknown"

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


def _seconds_or_never(value: Any) -> float | None:
    return None if value is None or value is False else _seconds(value)


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


def _clock(value: Any) -> str | None:
    if value is None or value is False:
        return None
    if value not in ("wall", "cpu"):
        raise ValueError("must be wall or cpu")
    return str(value)


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise ValueError("must be texts: a list, or with commas between them")
    return tuple(text for text in value if text)


def _patterns(value: Any) -> tuple[str, ...]:
    # A comma may be part of a regular expression, as in a{1,3}.
    return _texts([value] if isinstance(value, str) else value)


def _roles(value: Any) -> tuple[str, ...]:
    roles = _texts(value)
    if not set(roles) <= {"worker", "scheduler", "client"}:
        raise ValueError("must be among worker, scheduler, client")
    return roles


#: What the setting `leave-out` knows.
LEAVE_OUT = ("arguments", "code", "environment", "errors", "hosts", "paths", "settings", "users")


def _left_out(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    if unknown := sorted(set(names) - set(LEAVE_OUT)):
        raise ValueError(f"has {', '.join(unknown)}; known are {', '.join(LEAVE_OUT)}")
    return tuple(sorted(set(names)))


def _library(value: Any) -> str | None:
    if value is True:
        return "auto"
    return None if value is False else _text(value)


def _count(value: Any) -> int:
    try:
        number = int(value)
    except (ValueError, TypeError):
        raise ValueError("must be a whole number") from None
    if not 1 <= number <= 1_000_000:  # noqa: PLR2004
        raise ValueError("must be between 1 and 1,000,000")
    return number


@dataclass(frozen=True)
class Setting:
    """One setting: its name in Dask's configuration, default, reader and meaning."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    meaning: str

    @property
    def field(self) -> str:
        """Its name in Python: in `Settings`, and as a keyword."""
        return self.name.replace(".", "_").replace("-", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting("enabled", default=True, read=_flag, meaning="Whether a preload records at all."),
    Setting("runs", "runs", _text, "Folder that runs are made in."),
    Setting("name", None, _text, "Name of the run; the script's name by default."),
    Setting(
        "flush-interval",
        "80ms",
        _seconds,
        "How often records reach the operating system: a killed process loses what it saw since.",
    ),
    Setting(
        "fsync-interval",
        None,
        _seconds_or_never,
        "How often the disk is asked, at most, to keep what was written, and at the end: what a "
        "node that dies loses of it. Never by default.",
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
        "leave-out",
        (),
        _left_out,
        "What is not recorded, as `docs/security.md` says: any of " + ", ".join(LEAVE_OUT) + ".",
    ),
    Setting(
        "leave-out-secret",
        None,
        _text,
        "Set by the scheduler's recorder, in memory: names for what is left out come from it.",
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
    Setting(
        "yappi.clock",
        None,
        _clock,
        "Profile with Yappi, by wall or cpu clock; `yappi: wall` says the same.",
    ),
    Setting("yappi.roles", ("worker",), _roles, "Processes to profile: worker, scheduler, client."),
    Setting(
        "yappi.interval",
        "10s",
        _seconds,
        "How often the profile so far is recorded: at samples, so `sample-interval` is the least.",
    ),
    Setting(
        "darshan.library",
        None,
        _library,
        "Darshan's runtime library, to be loaded into workers that have a nanny: a path, or auto "
        "to look for it; `darshan: auto` says the same.",
    ),
    Setting(
        "darshan.log-dir", None, _text, "Folder for Darshan's logs; `darshan` in the run's folder."
    ),
    Setting("darshan.dxt", default=True, read=_flag, meaning="Whether Darshan traces operations."),
    Setting(
        "darshan.exclude",
        (),
        _patterns,
        "Regular expressions of files to leave out, beside Python's own and the system's.",
    ),
    Setting("darshan.memory", 64, _count, "Memory for Darshan's records in a worker, in MiB."),
    Setting("darshan.records", 4096, _count, "Files that Darshan keeps records of in a worker."),
    Setting("session", None, _text, "Set by `dask-strata record` to find its runs again."),
)

#: Settings that belong together. A plain value in the place of the group is that of its first.
GROUPS = {
    group: next(s.name for s in SETTINGS if s.name.startswith(f"{group}."))
    for group in ("yappi", "darshan")
}


@dataclass(frozen=True)
class Settings:
    """The settings with their values; intervals are in seconds."""

    enabled: bool
    runs: str
    name: str | None
    flush_interval: float
    fsync_interval: float | None
    sample_interval: float
    code: bool
    settings: bool
    leave_out: tuple[str, ...]
    leave_out_secret: str | None
    attempts: bool
    inputs: bool
    tap: str
    compact: bool
    yappi_clock: str | None
    yappi_roles: tuple[str, ...]
    yappi_interval: float
    darshan_library: str | None
    darshan_log_dir: str | None
    darshan_dxt: bool
    darshan_exclude: tuple[str, ...]
    darshan_memory: int
    darshan_records: int
    session: str | None

    def as_config(self) -> dict[str, Any]:
        """Return them by their names in Dask's configuration."""
        return {s.name: getattr(self, s.field) for s in SETTINGS}

    def chosen(self) -> dict[str, Any]:
        """Return those that are not as by default: all that another version has to understand."""
        return {
            name: value
            for (name, value), setting in zip(self.as_config().items(), SETTINGS, strict=True)
            if value != setting.read(setting.default)
        }


def understood(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what this version knows of the settings of another one, and the names of the rest."""
    fields = {setting.field for setting in SETTINGS}
    known, unknown = {}, []
    for field, (name, value) in _flat(config):
        if field in fields:
            known[name] = value
        else:
            unknown.append(name)
    return known, tuple(sorted(unknown))


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
    known = {setting.field: setting for setting in SETTINGS}
    given = dict(_flat(config)) | dict(_flat({n: v for n, v in overrides.items() if v is not None}))
    for field in [field for field in given if field not in known]:
        _tell_unknown(field, given, lenient=lenient and field not in dict(_flat(overrides)))
    values = {}
    for field, setting in known.items():
        _, value = given.get(field, ("", setting.default))
        try:
            values[field] = setting.read(value)
        except (ValueError, TypeError, LookupError) as error:
            raise SettingError(f"{NAMESPACE}.{setting.name}: {value!r} {error}.") from None
    return _consistent(Settings(**values))


def _consistent(settings: Settings) -> Settings:
    """Return the settings with what follows from one for another."""
    off = {name for name in ("code", "settings") if not getattr(settings, name)}
    out = off | set(settings.leave_out)
    names = sorted(out & {"hosts", "paths", "users"})
    if names and settings.darshan_library is not None:
        raise SettingError(
            f"{NAMESPACE}.darshan: Darshan's own logs have {', '.join(names)} in them, which "
            f"{NAMESPACE}.leave-out says to leave out.",
            hint="Take one of both.",
        )
    return replace(
        settings,
        code="code" not in out,
        settings="settings" not in out,
        leave_out=tuple(sorted(out)),
    )


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield each setting's name in Python, with its name as given and its value."""
    for key, value in config.items():
        name = str(key).replace("_", "-")
        if name not in GROUPS:
            pairs = [(name, value)]
        elif isinstance(value, Mapping):
            pairs = [(f"{name}.{str(k).replace('_', '-')}", v) for k, v in value.items()]
        else:
            pairs = [(GROUPS[name], value)]
        for full, inner in pairs:
            yield full.replace(".", "_").replace("-", "_"), (full, inner)


def _tell_unknown(field: str, given: Mapping[str, tuple[str, Any]], *, lenient: bool) -> None:
    names = [setting.name for setting in SETTINGS]
    close = difflib.get_close_matches(given[field][0], names, n=1)
    hint = (
        f"Did you mean {NAMESPACE}.{close[0]}?" if close else f"Known settings: {', '.join(names)}."
    )
    problem = f"Unknown setting {NAMESPACE}.{given[field][0]}."
    if not lenient:
        raise SettingError(problem, hint=hint)
    if field not in _told and "session" not in given:  # `dask-strata record` has said it
        _told.add(field)
        logger.warning("dask-strata: %s It is left out. %s", problem, hint)
