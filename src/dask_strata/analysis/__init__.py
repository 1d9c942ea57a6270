"""Answers about a run: each function takes a `Run` and returns frozen objects.

Most modules have the name of the command, or of the section of the page, that shows its answer.
Nothing here prints, writes files or imports ``distributed``.
"""
