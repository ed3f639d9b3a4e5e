"""The cost of each job: where, for what, and how much was wasted, from node-seconds at the price of the moment."""
