"""What runs on the cluster: light, never raises into Dask, never blocks it.

``session`` attaches and detaches; ``scheduler``, ``worker``, ``nanny`` and ``client``
know what there is to record in each role; ``engine`` is the thread that turns it into
frames; ``taps`` follows Dask's own logs; ``job``, ``settings``, ``script`` and ``redact``
gather the static facts.
"""
