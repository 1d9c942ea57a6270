"""The summary of a run in its folder, and the files that it belongs to.

``files`` lists a run's files, ``summary_file`` reads and writes ``summary.json``, ``typed_json``
converts frozen dataclasses to JSON and back. Nothing here imports Arrow: a list of runs reads
their summaries in less time than an import of Arrow takes.
"""
