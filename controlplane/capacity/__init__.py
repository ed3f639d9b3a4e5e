"""Machines for the jobs of a master: the allocators' hands, and the clusters of the fleet kept ready."""
