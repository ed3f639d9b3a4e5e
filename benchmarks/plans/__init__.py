"""Markets for plans, simple policies to compare with, and the cost of a day under each policy."""
