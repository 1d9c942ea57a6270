"""Graphs: their submission by clients, expressions and layers as written, functions of tasks."""
