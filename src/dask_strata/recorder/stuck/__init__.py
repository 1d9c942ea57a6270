"""What does not move while a run is recorded: tasks that run too long or wait, silent workers."""
