"""Small cores and their checks, which the test of the tool mutates."""
