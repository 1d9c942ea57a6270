"""The diagnosis of the cluster at an address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import warnings
from typing import Any

from dask_strata.errors import StrataError
from dask_strata.recorder.copying.address import ADDRESS_HINT, scheduler_address
from dask_strata.recorder.doctor.cluster import diagnose_cluster
from dask_strata.recorder.doctor.diagnosis import Diagnosis

#: Longest wait for the end of the client's connections.
_CLOSE_SECONDS = 5.0


def diagnose_address(address: str, seconds: float) -> Diagnosis:
    """Connect a client that is not recorded itself, and return the diagnosis of its cluster.

    Parameters
    ----------
    address : str
        Address of the scheduler, or path of its scheduler file.
    seconds : float
        Longest time to wait for a connection.

    Raises
    ------
    UsageError
        The address is not one.
    StrataError
        No scheduler answers there.
    """
    target = scheduler_address(address)
    look(target, seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the answer shows versions that differ
        return asyncio.run(_diagnose(target, seconds))


async def _diagnose(address: str, seconds: float) -> Diagnosis:
    try:
        client = _client(address, seconds)
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # for example without keys
        raise unreachable(address, str(error) or type(error).__name__) from error
    try:
        # Dask's own limit does not hold where something else listens and sends nothing.
        await asyncio.wait_for(_started(client), seconds)
        return await diagnose_cluster(client)
    except asyncio.TimeoutError:
        raise unreachable(address, f"no answer of Dask within {seconds:g} s") from None
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise unreachable(address, str(error) or type(error).__name__) from error
    finally:
        # The diagnosis counts: a client that cannot be closed changes nothing of it.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), _CLOSE_SECONDS)


def _client(address: str, seconds: float) -> Any:
    """Return a client without preloads, which are read when it is made."""
    import dask
    from distributed import Client

    with dask.config.set({"distributed.client.preload": [], "distributed.client.preload-argv": []}):
        return Client(
            address,
            asynchronous=True,
            timeout=seconds,
            set_as_default=False,
            name="dask-strata-doctor",
        )


async def _started(client: Any) -> None:
    await client


def look(address: str, seconds: float) -> None:
    """Fail at once where nothing listens: Dask would repeat its attempts until the time is up.

    Parameters
    ----------
    address : str
        Address of the scheduler.
    seconds : float
        Longest time to wait for a connection.

    Raises
    ------
    StrataError
        Nothing listens there.
    """
    from distributed.comm.addressing import get_address_host_port, parse_address

    if parse_address(address)[0] != "tcp":
        return
    try:
        host, port = get_address_host_port(address)
        socket.create_connection((host, port), seconds).close()
    except (OSError, ValueError) as error:
        raise unreachable(address, getattr(error, "strerror", None) or str(error)) from error


def unreachable(address: str, reason: str) -> StrataError:
    """Return the error that no scheduler answers at an address, for a reason."""
    return StrataError(
        f"No scheduler answers at {address}: {reason.rstrip('.')}.", hint=ADDRESS_HINT
    )
