"""Recorders of the scheduler, workers, nannies and clients, and how they are detached."""
