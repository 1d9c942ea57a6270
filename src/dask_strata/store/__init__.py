"""Files of a run: each process appends to its own segment; readers open segments or Parquet.

``frames`` defines the segment format, ``sinks`` append to segments, ``segments`` and ``decode``
read them, ``compact`` turns them into Parquet, ``reader`` opens either, ``manifest`` reads and
writes ``run.json``, ``bulk_writer`` writes imported rows. ``limits`` bounds memory and time, and
``safe_files`` keeps every read inside of the run's folder.
"""
