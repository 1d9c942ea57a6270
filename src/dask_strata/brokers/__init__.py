"""Streams of a run's rows: their messages, and the brokers that these are sent to and read from.

A sink sends messages to a broker, a source reads them. The folder of the run stays the truth: a
sink is fed from rows that were written, and after a failure it is asked for its positions.
"""
