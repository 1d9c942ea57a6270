"""Tests of tables on a terminal."""
