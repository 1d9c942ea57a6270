"""Flame graphs: trees of calls in Dask's statistical profile, by prefix, without small frames."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dask_strata.analysis.stacks.stacks import Function, Stack, StackFilter, has_stacks, stacks
from dask_strata.schema.owners import owner_of

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Share of a graph's samples below which a frame is left out.
SMALLEST = 0.002

#: Most graphs by prefix, besides that of all prefixes.
MOST_GRAPHS = 8

#: Most frames of a graph, and most rows.
MOST_FRAMES, DEEPEST = 500, 60


@dataclass(frozen=True)
class FlameFrame:
    """A frame of a flame graph.

    Attributes
    ----------
    function : Function
        The function.
    depth : int
        Number of frames that called it.
    begin : float
        Left edge as a share of the graph, 0 to 1.
    share : float
        Width: the share of the samples that were in it, or in functions that it called.
    own_share : float
        Share of the samples in which it was the innermost.
    seconds : float
        Dask's estimate of the time of ``share``.
    """

    function: Function
    depth: int
    begin: float
    share: float
    own_share: float
    seconds: float

    @property
    def owner(self) -> str | None:
        """Owner of the function, see `dask_strata.schema.owners`."""
        return owner_of(self.function.module or "").owner


@dataclass(frozen=True)
class FlameGraph:
    """The flame graph of one prefix, or of all.

    Attributes
    ----------
    prefix : str or None
        The prefix; None for the graph of all.
    n_samples : int
        Number of samples.
    seconds : float
        Dask's estimate of their time.
    frames : tuple of FlameFrame
        The frames, callers before the functions that they called.
    n_left_out : int
        Frames that are too small to show.
    """

    prefix: str | None
    n_samples: int
    seconds: float
    frames: tuple[FlameFrame, ...]
    n_left_out: int

    @property
    def depth(self) -> int:
        """Number of rows."""
        return max((frame.depth + 1 for frame in self.frames), default=0)


@dataclass
class _Node:
    n: int = 0
    own: int = 0
    seconds: float = 0.0
    children: dict[Function, _Node] = field(default_factory=dict)


def flame_graphs(run: Run) -> tuple[FlameGraph, ...]:
    """Return the flame graph of all tasks, and those of the prefixes with most samples.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    tuple of FlameGraph
        Empty if no task was sampled.
    """
    found = stacks(run, StackFilter()) if has_stacks(run) else []
    by_prefix: defaultdict[str | None, list[Stack]] = defaultdict(list)
    for stack in found:
        by_prefix[stack.prefix].append(stack)
    graphs = sorted(
        (_graph(prefix, of_prefix) for prefix, of_prefix in by_prefix.items()),
        key=lambda graph: (-graph.n_samples, graph.prefix or ""),
    )
    if len(graphs) > 1:
        graphs = [_graph(None, found), *graphs[:MOST_GRAPHS]]
    return tuple(graphs)


def _graph(prefix: str | None, of_prefix: list[Stack]) -> FlameGraph:
    root = _Node()
    for stack in of_prefix:
        node = root
        for function in (None, *stack.frames):
            if function is not None:
                node = node.children.setdefault(function, _Node())
            node.n += stack.n_samples
            node.seconds += stack.seconds
        node.own += stack.n_samples
    frames, left_out = _placed(root)
    return FlameGraph(prefix, root.n, root.seconds, tuple(frames), left_out)


def _placed(root: _Node) -> tuple[list[FlameFrame], int]:
    """Return the frames that are large enough, and the number of the others."""
    frames: list[FlameFrame] = []
    left_out = 0
    level = [(0.0, root)]
    # By rows, so that the bound on frames leaves out the deepest.
    for depth in range(DEEPEST + 1):
        below: list[tuple[float, _Node]] = []
        for left, parent in level:
            begin = left
            for function, node in sorted(parent.children.items(), key=lambda c: (-c[1].n, c[0][0])):
                share = node.n / root.n
                if share < SMALLEST or depth == DEEPEST or len(frames) >= MOST_FRAMES:
                    left_out += 1
                    continue
                frames.append(
                    FlameFrame(function, depth, begin, share, node.own / root.n, node.seconds)
                )
                below.append((begin, node))
                begin += share
        level = below
    return frames, left_out
