"""Machines for the jobs of a master: the shell of the allocators, and the upkeep of the fleet's clusters."""
