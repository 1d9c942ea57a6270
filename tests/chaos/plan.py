"""The faults of a trial, derived from its seed alone: the same on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: Faults that end the workflow or remove the run: each is the last of its trial.
LAST = ("kill-scheduler", "kill-client", "folder-removed")
NETWORK = ("network-cut", "network-delay")
DISK = ("disk-full", "folder-read-only", "folder-removed")
CLOCK = ("clock-jump",)
KINDS = (
    "kill-worker",
    "kill-nanny",
    "kill-scheduler",
    "kill-client",
    "stop-worker",
    "stop-nanny",
    "stop-scheduler",
    "stop-client",
    "memory-kill",
    "restart",
    "scale-up",
    "scale-down",
    *NETWORK,
    *DISK,
    *CLOCK,
)


@dataclass(frozen=True)
class Injection:
    """One fault.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    wait : float
        Seconds since the previous fault.
    choice : float
        From 0 to 1: which of the running processes is affected.
    seconds : float
        Duration of a fault that ends by itself.
    """

    kind: str
    wait: float
    choice: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """One trial.

    Attributes
    ----------
    seed : int
        The seed.
    injections : tuple of Injection
        The faults, in their order.
    attach : bool
        Whether the client starts the recording, with `record`; else a preload does.
    hidden : bool
        Whether the run's folder is invisible on the second host, if there is one.
    """

    seed: int
    injections: tuple[Injection, ...]
    attach: bool
    hidden: bool

    def has(self, kinds: tuple[str, ...]) -> bool:
        """Return whether a fault of these kinds is planned."""
        return any(i.kind in kinds for i in self.injections)

    def __str__(self) -> str:
        mode = "attached" if self.attach else "preload"
        mode += ", folder hidden from host b" if self.hidden and self.has(NETWORK) else ""
        return f"{' '.join(i.kind for i in self.injections)} ({mode})"


def plan(seed: int, kinds: tuple[str, ...] = KINDS) -> Plan:
    """Return the plan of a seed, with faults of these kinds."""
    dice = random.Random(seed)
    first = tuple(k for k in kinds if k not in LAST)
    last = tuple(k for k in kinds if k in LAST)
    ends = bool(last) and dice.random() < (0.4 if first else 1)
    chosen = dice.choices(first, k=dice.randrange(1, 6)) if first else []
    if ends:
        chosen.append(dice.choice(last))
    injections = tuple(
        Injection(kind, dice.uniform(0.1, 1.5), dice.random(), dice.uniform(0.5, 4.0))
        for kind in chosen
    )
    return Plan(seed, injections, attach=dice.random() < 0.3, hidden=dice.random() < 0.3)
