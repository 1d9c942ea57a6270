"""Data that the page draws over time: attempts, series, and traffic between workers."""
