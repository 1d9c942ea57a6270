"""Tests of reading bundles that may come from anyone."""
