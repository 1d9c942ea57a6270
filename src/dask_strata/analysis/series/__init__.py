"""Columns of numbers that are read in parts, and the states of threads over time."""
