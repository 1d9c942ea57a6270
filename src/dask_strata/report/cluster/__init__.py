"""Views of running clusters."""
