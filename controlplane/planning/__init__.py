"""The plan of a job's machines: a pure function of criteria, offers, observations and current capacity."""
