"""Runs as telemetry: traces of OpenTelemetry, and series of OpenMetrics."""
