"""Actions of a job in each phase."""
