"""Views: what the analysis found, for a person. ``terminal`` prints, ``tables`` writes tables."""
