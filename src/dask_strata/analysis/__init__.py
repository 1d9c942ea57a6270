"""Answers: a run in, frozen objects out. Nothing here prints, writes or imports Dask's cluster.

``completeness`` is the record whole, ``breakdown`` where worker-seconds went, ``summary``
the first screen, ``stories`` one task, ``mapping`` the metadata map.
"""
