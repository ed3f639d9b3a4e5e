"""The leader's lease, by which one of several masters acts: a pure core, and a keeper with a key of the bus."""
