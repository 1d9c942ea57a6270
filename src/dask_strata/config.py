"""The settings of dask-strata in Dask's configuration, under ``dask_strata``.

Users set them like any setting of Dask: in a YAML file, as environment variables
(``DASK_DASK_STRATA__FLUSH_INTERVAL=50ms``), with ``dask.config.set``, or as options of
``dask-strata record``. `Settings` lists them all; `read_settings` checks and converts values.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dask_strata.errors import SettingError

NAMESPACE = "dask_strata"

try:
    VERSION = version("dask-strata")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0+unknown"

logger = logging.getLogger(NAMESPACE)

#: Unknown settings that this process has warned of.
_warned: set[str] = set()

_MIN_SECONDS, _MAX_SECONDS = 0.01, 3600
_MAX_COUNT = 1_000_000


#: Brokers that the setting `stream` can name.
STREAMS = ("kafka", "redis", "rediss", "mofka", "file")


class _HiddenValueError(ValueError):
    """The value of a setting is invalid, and may contain a secret."""


def _seconds(value: Any) -> float:
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(value, default="s"))
    except (ValueError, TypeError, KeyError, IndexError):
        raise ValueError("is not a duration; examples: 100ms, 1s") from None
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
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


def _stream(value: Any) -> str | None:
    if value is None or value is False or not value:
        return None
    if not isinstance(value, str) or value.partition(":")[0].lower() not in STREAMS:
        # Without the value: it may contain a password.
        raise _HiddenValueError(f"does not begin with {', '.join(f'{s}:' for s in STREAMS)}")
    return value


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
        raise ValueError("must be a list of strings, or one string with commas in between")
    return tuple(text for text in value if text)


def _tags(value: Any) -> tuple[str, ...]:
    """Return tags: words, or pairs such as ``size=big``, also of a mapping."""
    if isinstance(value, dict):
        value = [f"{name}={each}" for name, each in value.items()]
    return _texts(value)


def _patterns(value: Any) -> tuple[str, ...]:
    # Do not split at commas: a regular expression may contain one, as in a{1,3}.
    return _texts([value] if isinstance(value, str) else value)


def _roles(value: Any) -> tuple[str, ...]:
    roles = _texts(value)
    if not set(roles) <= {"worker", "scheduler", "client"}:
        raise ValueError("must be among worker, scheduler, client")
    return roles


#: Values of the setting `access`.
ACCESS = ("owner", "group", "umask")


def _access(value: Any) -> str:
    if value not in ACCESS:
        raise ValueError(f"must be {', '.join(ACCESS[:-1])} or {ACCESS[-1]}")
    return str(value)


#: Values of the setting `leave-out`.
LEAVE_OUT = (
    *("arguments", "code", "environment", "errors", "hosts", "logs", "paths", "settings", "users"),
)


def _left_out(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    if unknown := sorted(set(names) - set(LEAVE_OUT)):
        raise ValueError(f"contains {', '.join(unknown)}; allowed are {', '.join(LEAVE_OUT)}")
    return tuple(sorted(set(names)))


#: Names of logging's levels with their numbers.
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


def _level(value: Any) -> int:
    """Return the number of a level of logging, given by its name or number."""
    text = str(value).strip().upper()
    number = LEVELS.get(text, int(text) if text.isdecimal() else None)
    if number is None or not 1 <= number <= LEVELS["CRITICAL"]:
        names = ", ".join(LEVELS)
        raise ValueError(f"is not a level of logging: {names}, or a number from 1 to 50")
    return number


def _clients(value: Any) -> str | None:
    if value is None:
        return None
    if value not in ("own", "all"):
        raise ValueError("must be own or all")
    return str(value)


def _library(value: Any) -> str | None:
    if value is True:
        return "auto"
    return None if value is False else _text(value)


def _count(value: Any) -> int:
    try:
        number = int(value)
    except (ValueError, TypeError):
        raise ValueError("must be a whole number") from None
    if not 1 <= number <= _MAX_COUNT:
        raise ValueError("must be between 1 and 1,000,000")
    return number


def _size(value: Any) -> int:
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(value))
    except (ValueError, TypeError, KeyError):
        raise ValueError("is not a size; examples: 500 MiB, 10 GiB") from None
    if size < 0:
        raise ValueError("must not be negative")
    return size


def _setting(read: Callable[[Any], Any], *, default: Any, meaning: str) -> dict[str, Any]:
    """Return the metadata of a field of `Settings`; see `Setting`."""
    return {"read": read, "default": default, "meaning": meaning}


@dataclass(frozen=True)
class Settings:
    """The settings with their values; intervals are in seconds.

    This is the only list of settings. `SETTINGS` describes its fields.
    """

    enabled: bool = field(
        metadata=_setting(_flag, default=True, meaning="Whether the preload records anything.")
    )
    runs: str = field(
        metadata=_setting(
            _text,
            default="runs",
            meaning="Folder in which runs are created, or a "
            "URL that fsspec knows, such as `s3://bucket/runs`. See `docs/places.md`.",
        )
    )
    spool: str | None = field(
        metadata=_setting(
            _text,
            default=None,
            meaning="Folder in which a run is kept until it is uploaded, if `runs` is a URL; by "
            "default Dask's `temporary-directory`, or the system's.",
        )
    )
    upload_interval: float = field(
        metadata=_setting(
            _seconds,
            default="5s",
            meaning="How often new records are uploaded, if `runs` is a URL.",
        )
    )
    stream: str | None = field(
        repr=False,  # it may contain a password
        metadata=_setting(
            _stream,
            default=None,
            meaning="Address of a broker that gets all rows while they are recorded, such as "
            "`kafka://host:9092/topic`, `redis://host`, `mofka:GROUPFILE` or `file:PATH`. See "
            "`docs/streams.md`.",
        ),
    )
    cache: str | None = field(
        metadata=_setting(
            _text,
            default=None,
            meaning="Folder for copies of runs that are read from a URL, and for snapshots of "
            "large runs that are not finalised; by default `dask-strata/runs` in the user's cache "
            "folder.",
        )
    )
    cache_size: int = field(
        metadata=_setting(
            _size,
            default="10 GiB",
            meaning="Size of that folder, at most: those that were not used for longest are "
            "removed, except those of the last hour.",
        )
    )
    name: str | None = field(
        metadata=_setting(
            _text,
            default=None,
            meaning="Name of the run; by default that of the client's script, module or notebook.",
        )
    )
    clients: str | None = field(
        metadata=_setting(
            _clients,
            default=None,
            meaning="Whose tasks are recorded: own (those of the client that starts the recording, "
            "and all that they depend on) or all. By default own for `dask_strata.record` in "
            "Python, and all for the preload and `dask-strata record`; see `docs/clients.md`.",
        )
    )
    access: str = field(
        metadata=_setting(
            _access,
            default="owner",
            meaning="Access to the run's folder: owner (folders 0700, files 0600), group (0750, "
            "0640), or umask (what the umask of the scheduler's process allows).",
        )
    )
    flush_interval: float = field(
        metadata=_setting(
            _seconds,
            default="80ms",
            meaning="How often records are written to the operating system: a process that is "
            "killed loses the records since its last flush.",
        )
    )
    fsync_interval: float | None = field(
        metadata=_setting(
            _seconds_or_never,
            default=None,
            meaning="How often, at most, written records are synced to disk (fsync); also once "
            "at the end. A node that dies loses the records since its last sync. Never by default.",
        )
    )
    sample_interval: float = field(
        metadata=_setting(
            _seconds, default="500ms", meaning="How often state over time is sampled."
        )
    )
    code: bool = field(
        metadata=_setting(
            _flag, default=True, meaning="Whether script text and source lines are recorded."
        )
    )
    settings: bool = field(
        metadata=_setting(
            _flag,
            default=True,
            meaning="Whether Dask's configuration and package versions are recorded.",
        )
    )
    tags: tuple[str, ...] = field(
        metadata=_setting(
            _tags,
            default=(),
            meaning="Words that mark a run, or pairs such as size=big: `dask-strata compare --by "
            "tag` and `--by tag.size` make groups of runs by them.",
        )
    )
    leave_out: tuple[str, ...] = field(
        metadata=_setting(
            _left_out,
            default=(),
            meaning="Classes of facts that are not recorded: any of "
            + ", ".join(LEAVE_OUT)
            + ". See `docs/security.md`.",
        )
    )
    leave_out_secret: str | None = field(
        metadata=_setting(
            _text,
            default=None,
            meaning="Key of the hashes that replace left-out names. The scheduler's recorder "
            "sets it, in memory only.",
        )
    )
    attempts: bool = field(
        metadata=_setting(
            _flag,
            default=True,
            meaning="Whether CPU time, I/O, memory and page faults of each task execution are "
            "recorded.",
        )
    )
    inputs: bool = field(
        metadata=_setting(
            _flag,
            default=True,
            meaning="Whether the inputs that tasks declare and the files that they open are "
            "recorded.",
        )
    )
    sampling: bool = field(
        metadata=_setting(
            _flag,
            default=True,
            meaning="Whether the threads of tasks and clients are sampled: why each waits, and at "
            "which line of the user's code; also whether a client's gathers and scatters are "
            "recorded, and Dask's own statistical profile. Samples of tasks need `attempts`.",
        )
    )
    log_level: int = field(
        metadata=_setting(
            _level,
            default="INFO",
            meaning="Least level of log records that are recorded: DEBUG, INFO, WARNING, ERROR or "
            "CRITICAL. Loggers keep their own levels: what they do not let through is not on "
            "record.",
        )
    )
    interruptions: bool = field(
        metadata=_setting(
            _flag,
            default=True,
            meaning="Whether long collections of the garbage collector are recorded, and the waits "
            "for the GIL that Dask measures if the package gilknocker is installed.",
        )
    )
    tap: str = field(
        metadata=_setting(
            _tap,
            default="auto",
            meaning="How transitions are recorded: auto (from Dask's own logs if their format is "
            "the expected one; costs least) or plugin (public plugin calls only).",
        )
    )
    compact: bool = field(
        metadata=_setting(
            _flag, default=True, meaning="Whether `dask-strata record` writes Parquet at its end."
        )
    )
    yappi_clock: str | None = field(
        metadata=_setting(
            _clock,
            default=None,
            meaning="Profile with Yappi, on the wall or cpu clock; `yappi: wall` is short for "
            "`yappi: {clock: wall}`.",
        )
    )
    yappi_roles: tuple[str, ...] = field(
        metadata=_setting(
            _roles,
            default=("worker",),
            meaning="Processes to profile: worker, scheduler, client.",
        )
    )
    yappi_interval: float = field(
        metadata=_setting(
            _seconds,
            default="10s",
            meaning="How often the cumulative profile is recorded; `sample-interval` is its "
            "lower bound.",
        )
    )
    darshan_library: str | None = field(
        metadata=_setting(
            _library,
            default=None,
            meaning="Path of Darshan's runtime library, or auto to search for it. It is loaded "
            "into workers that have a nanny; `darshan: auto` is short for "
            "`darshan: {library: auto}`.",
        )
    )
    darshan_log_dir: str | None = field(
        metadata=_setting(
            _text,
            default=None,
            meaning="Folder for Darshan's logs; by default `darshan` in the run's folder.",
        )
    )
    darshan_dxt: bool = field(
        metadata=_setting(_flag, default=True, meaning="Whether Darshan traces single operations.")
    )
    darshan_exclude: tuple[str, ...] = field(
        metadata=_setting(
            _patterns,
            default=(),
            meaning="Regular expressions of files that Darshan ignores, in addition to files of "
            "Python and of the system.",
        )
    )
    darshan_memory: int = field(
        metadata=_setting(
            _count, default=64, meaning="Memory for Darshan's records in a worker, in MiB."
        )
    )
    darshan_records: int = field(
        metadata=_setting(
            _count, default=4096, meaning="How many files Darshan keeps records of in a worker."
        )
    )
    session: str | None = field(
        metadata=_setting(
            _text, default=None, meaning="Set by `dask-strata record` to find its runs."
        )
    )

    def as_config(self) -> dict[str, Any]:
        """Return all values by the settings' names in Dask's configuration.

        >>> read_settings({"yappi": "cpu"}).as_config()["yappi.clock"]
        'cpu'
        """
        return {s.name: getattr(self, s.field) for s in SETTINGS}

    def chosen(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, by name in Dask's configuration.

        Only these travel to other processes, whose version may lack some of the settings.

        >>> read_settings({"flush-interval": "1s"}).chosen()
        {'flush-interval': 1.0}
        """
        return {
            name: value
            for (name, value), setting in zip(self.as_config().items(), SETTINGS, strict=True)
            if value != setting.read(setting.default)
        }


@dataclass(frozen=True)
class Setting:
    """The description of one setting.

    Parameters
    ----------
    name : str
        Name in Dask's configuration, under ``dask_strata``.
    default : object
        Default value, as a user would write it.
    read : callable
        Returns the typed value of a given one; raises ValueError, TypeError or LookupError.
    meaning : str
        One or two sentences for the user.
    """

    name: str
    default: Any
    read: Callable[[Any], Any]
    meaning: str

    @property
    def field(self) -> str:
        """Name in Python: as a field of `Settings`, and as a keyword of `dask_strata.record`."""
        return _in_python(self.name)


#: Groups of settings, each with the setting that a plain value of the group stands for.
GROUPS = {"yappi": "yappi.clock", "darshan": "darshan.library"}


def _in_python(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _in_configuration(name: str) -> str:
    group, _, rest = name.partition("_")
    return f"{group}.{rest}".replace("_", "-") if group in GROUPS else name.replace("_", "-")


#: The settings, in the order of `Settings`.
SETTINGS: tuple[Setting, ...] = tuple(
    Setting(_in_configuration(field.name), **field.metadata) for field in fields(Settings)
)


def understood(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings that this version knows, and the names of the unknown ones.

    Parameters
    ----------
    config : mapping
        Settings by name, perhaps from another version of dask-strata.

    Examples
    --------
    >>> understood({"flush-interval": 1.0, "added-later": True})
    ({'flush-interval': 1.0}, ('added-later',))
    """
    in_python = {setting.field for setting in SETTINGS}
    known, unknown = {}, []
    for field_name, (name, value) in _flat(config):
        if field_name in in_python:
            known[name] = value
        else:
            unknown.append(name)
    return known, tuple(sorted(unknown))


def read_settings(config: Mapping[str, Any] | None = None, **overrides: Any) -> Settings:
    """Return the settings in force, checked and converted.

    Parameters
    ----------
    config : mapping, optional
        The part of a configuration under ``dask_strata``; by default that of Dask's own.
    **overrides
        Settings by name (with ``_`` for ``-`` and ``.``) that replace those of the configuration.
        None replaces nothing.

    Returns
    -------
    Settings

    Raises
    ------
    SettingError
        A value is invalid, or a setting is unknown. An unknown setting in Dask's own
        configuration causes a warning instead, because it may be meant for another version.

    Examples
    --------
    >>> read_settings({"flush-interval": "50ms"}, code=False).flush_interval
    0.05
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
    named = dict(_flat(overrides))
    given = dict(_flat(config)) | dict(_flat({n: v for n, v in overrides.items() if v is not None}))
    for name in [name for name in given if name not in known]:
        _report_unknown(name, given, lenient=lenient and name not in named)
    values = {}
    for name, setting in known.items():
        _, value = given.get(name, ("", setting.default))
        try:
            values[name] = setting.read(value)
        except (ValueError, TypeError, LookupError) as error:
            shown = "the value" if isinstance(error, _HiddenValueError) else repr(value)
            raise SettingError(f"{NAMESPACE}.{setting.name}: {shown} {error}.") from None
    return _consistent(Settings(**values))


def _consistent(settings: Settings) -> Settings:
    """Return the settings with `leave_out`, `code` and `settings` in agreement."""
    off = {name for name in ("code", "settings") if not getattr(settings, name)}
    out = off | set(settings.leave_out)
    names = sorted(out & {"hosts", "paths", "users"})
    if names and settings.darshan_library is not None:
        raise SettingError(
            f"{NAMESPACE}.darshan: Darshan's own logs contain {', '.join(names)}, which "
            f"{NAMESPACE}.leave-out excludes.",
            hint="Use only one of the two settings.",
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
            yield _in_python(full), (full, inner)


def _report_unknown(
    field_name: str, given: Mapping[str, tuple[str, Any]], *, lenient: bool
) -> None:
    """Raise SettingError for an unknown setting, or warn once a process."""
    shown = given[field_name][0]
    names = [setting.name for setting in SETTINGS]
    close = difflib.get_close_matches(shown, names, n=1)
    hint = (
        f"Did you mean {NAMESPACE}.{close[0]}?" if close else f"Known settings: {', '.join(names)}."
    )
    problem = f"Unknown setting {NAMESPACE}.{shown}."
    if not lenient:
        raise SettingError(problem, hint=hint)
    # With a session, `dask-strata record` has already warned.
    if field_name not in _warned and "session" not in given:
        _warned.add(field_name)
        logger.warning("dask-strata: %s It is ignored. %s", problem, hint)
