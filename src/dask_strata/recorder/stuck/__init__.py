"""Stuck tasks and workers: tasks that run too long, tasks that wait, silent workers."""
