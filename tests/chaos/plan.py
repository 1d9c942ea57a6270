"""What happens in a trial, from its seed alone: the same on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: Faults after which there is no workflow, or no run, to go on with: the last of their trial.
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
        Seconds to wait before it, from the one before.
    choice : float
        From 0 to 1: who of those that there are then.
    seconds : float
        How long what ends by itself lasts.
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
        What all of it follows from.
    injections : tuple of Injection
        In their order.
    attach : bool
        Whether recording begins from the client, with `record`, and not with a preload.
    hidden : bool
        Whether the second host, if there is one, does not see the run's folder.
    """

    seed: int
    injections: tuple[Injection, ...]
    attach: bool
    hidden: bool

    def has(self, kinds: tuple[str, ...]) -> bool:
        """Tell whether a fault of these kinds is planned."""
        return any(i.kind in kinds for i in self.injections)

    def __str__(self) -> str:
        how = "attached" if self.attach else "preload"
        how += ", folder hidden from host b" if self.hidden and self.has(NETWORK) else ""
        return f"{' '.join(i.kind for i in self.injections)} ({how})"


def plan(seed: int, kinds: tuple[str, ...] = KINDS) -> Plan:
    """Return the trial of a seed, with faults among these kinds."""
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
