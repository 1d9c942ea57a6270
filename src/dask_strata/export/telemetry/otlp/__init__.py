"""Runs as traces of OpenTelemetry, in files and over HTTP."""
