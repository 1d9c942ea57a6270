"""Tests of bundles: a run and its page in one file."""
