"""Groups of ranks: the collectives of one world, on gloo or NCCL, and how they are built in the background."""
