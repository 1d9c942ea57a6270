"""Dask's statistical profile: stacks, functions and the tree of calls."""

from dask_strata.analysis.stacks.flame import FlameFrame, FlameGraph, flame_graphs
from dask_strata.analysis.stacks.functions import STACK_KINDS, select_functions
from dask_strata.analysis.stacks.stacks import Function, Stack, StackFilter, has_stacks, stacks

__all__ = [
    "STACK_KINDS",
    "FlameFrame",
    "FlameGraph",
    "Function",
    "Stack",
    "StackFilter",
    "flame_graphs",
    "has_stacks",
    "select_functions",
    "stacks",
]
