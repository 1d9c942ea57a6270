"""Files of stacks for other tools."""
