"""Answers about a run that are stored in its folder: for a list, the first screen, a comparison.

``row`` is the run's row in a list, ``comparable`` its values in a comparison,
``stored`` reads all of it from ``summary.json``, or computes and writes it.
"""
