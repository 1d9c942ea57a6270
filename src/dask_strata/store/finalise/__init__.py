"""Writing the tables of a run as Parquet with ids of keys, in buckets of keys, in limited memory.

Keys are collected and sorted (`keys`), rows get ids and are divided into buckets (`spool`), and
each bucket is written and read back (`tables`).
"""
