"""Markets to plan in, simple policies to compare a plan with, and what a day with each of them costs."""
