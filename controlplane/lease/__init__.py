"""The leader's lease: of several masters one acts. A pure core, and a keeper that runs it on a key of the bus."""
