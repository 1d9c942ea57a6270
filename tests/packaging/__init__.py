"""Tests of the package's own metadata and of its release."""
