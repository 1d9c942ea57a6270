"""Counts of words in JSON records, in partitions of ten thousand."""

import collections
import json
import random

import dask.bag as db
from common import now, options, ready
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

PARTITIONS = 160
RECORDS = 10_000
WORDS = [f"word{number}" for number in range(500)]


def make_lines(partition):
    """Return the lines of a partition."""
    (number,) = partition
    chooser = random.Random(number)
    return [
        json.dumps({"record": record, "text": " ".join(chooser.choices(WORDS, k=20))})
        for record in range(RECORDS)
    ]


def count_words(lines):
    """Return how often each word is in the lines."""
    counts = collections.Counter()
    for line in lines:
        counts.update(json.loads(line)["text"].split())
    return [counts]


def merge(partials):
    """Return the sum of counts."""
    return sum((collections.Counter(partial) for partial in partials), collections.Counter())


def main():
    options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "dask.bag")
        with get_task_stream(client) as stream:
            start = now()
            lines = db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS)
            counts = lines.map_partitions(make_lines).map_partitions(count_words)
            counts.reduction(merge, merge, split_every=8).compute()
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    main()
