"""What each job has spent, where, on what, and what of it was wasted: node-seconds at the price of the moment."""
