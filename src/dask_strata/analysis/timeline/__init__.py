"""What the page draws over time: attempts, series, traffic between workers."""
