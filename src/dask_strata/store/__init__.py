"""Files of a run: written append-only by each process, read back whatever happened.

``frames`` is the format, ``writer`` appends, ``reader`` reads segments or Parquet,
``compact`` turns the former into the latter, ``manifest`` names the run.
"""
