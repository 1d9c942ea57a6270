"""Which class sends to, and which reads from, the broker of an address."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.brokers.address import Address, parse_address
from dask_strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    from dask_strata.brokers.broker import Sink, Source

_PACKAGES = {
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "kafka": ("confluent_kafka", "kafka"),
}


def check_address(url: str | Address) -> Address:
    """Return the address of a URL whose broker can be used with the installed packages.

    Nothing is connected. This function imports nothing heavy.

    Raises
    ------
    UsageError
        The URL cannot be used.
    StrataError
        A package is not installed.
    """
    address = parse_address(url) if isinstance(url, str) else url
    if address.scheme == "file" and Path(address.path).is_dir():
        raise UsageError(f"{address} is a folder.", hint="Name a file in it: file:PATH")
    if address.scheme in _PACKAGES:
        package, extra = _PACKAGES[address.scheme]
        if find_spec(package) is None:
            raise StrataError(
                f"{address} needs the package {package}, which is not installed.",
                hint=f"pip install 'dask-strata[{extra}]'",
            )
    if address.scheme == "mofka" and not any(map(find_spec, ("mochi", "diaspora_stream"))):
        raise StrataError(
            f"{address} needs Mofka's Python modules (mochi.mofka or diaspora_stream), which are "
            "not installed.",
            hint="Mofka is on no package index: install it with Spack, see docs/brokers.md.",
        )
    return address


def open_sink(url: str | Address, run_id: str) -> Sink:
    """Return a sink for the messages of a run.

    Parameters
    ----------
    url : str or Address
        Address of the stream.
    run_id : str
        Id of the run.

    Raises
    ------
    UsageError
        The URL cannot be used.
    StrataError
        A package is not installed.
    """
    address = check_address(url)
    if address.scheme == "file":
        from dask_strata.brokers.file import FileSink

        return FileSink(address, run_id)
    if address.scheme == "kafka":
        from dask_strata.brokers.kafka import KafkaSink

        return KafkaSink(address, run_id)
    if address.scheme == "mofka":
        from dask_strata.brokers.mofka import MofkaSink

        return MofkaSink(address, run_id)
    from dask_strata.brokers.redis import RedisSink

    return RedisSink(address, run_id)


def open_source(url: str | Address) -> Source:
    """Return a source of the messages of a stream.

    Parameters and errors are those of `open_sink`.
    """
    address = check_address(url)
    if address.scheme == "file":
        from dask_strata.brokers.file import FileSource

        return FileSource(address)
    if address.scheme == "kafka":
        from dask_strata.brokers.kafka import KafkaSource

        return KafkaSource(address)
    if address.scheme == "mofka":
        from dask_strata.brokers.mofka import MofkaSource

        return MofkaSource(address)
    from dask_strata.brokers.redis import RedisSource

    return RedisSource(address)
