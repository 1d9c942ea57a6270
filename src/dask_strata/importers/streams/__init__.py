"""Make runs from streams of messages: from a file, Redis, Kafka or Mofka.

``importer`` reads a stream, ``run_folder`` writes one run of it, ``segment_file`` the segment of
one process. ``coupler`` writes events of the Mofka-Dask coupler as its CSV files, which
`importers.mofka` imports.
"""
