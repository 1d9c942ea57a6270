"""Runs as series of OpenMetrics, which Prometheus reads afterwards."""
