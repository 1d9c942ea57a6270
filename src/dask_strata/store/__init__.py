"""Files of a run: each process appends to its own segment; readers open segments or Parquet.

``segments`` defines their format and reads them, ``sinks`` append to them, ``compact`` turns them
into Parquet, ``reader`` opens either, ``manifest`` reads and writes ``run.json``, ``bulk_writer``
writes imported rows. ``limits`` bounds memory and time, ``safe_files`` keeps every read inside of
the run's folder, and ``sync`` flushes files to the disk.
"""
