"""The speed and cost of a job on a placement: pure arithmetic from a profile, a placement and the links."""
