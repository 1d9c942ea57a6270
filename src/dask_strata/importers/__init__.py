"""Import files of other programs: as a run of their own, or added to a recorded run."""
