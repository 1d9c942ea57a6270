"""A run as a trace for Perfetto's UI, and as JSON in Chrome's older format."""
