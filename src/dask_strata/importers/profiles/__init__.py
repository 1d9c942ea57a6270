"""Add profiles that Yappi or Python saved to a run."""
