"""Copies of runs in other places, made while the run is recorded."""
