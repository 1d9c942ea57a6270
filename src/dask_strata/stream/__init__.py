"""Rows of a run in the order of each process, while it is recorded or later, and sinks for them.

``follow`` yields the rows, from ``tail`` (segments), ``stored`` (Parquet) and ``derived`` (derived
tables). ``sender`` sends them to a broker.
"""
