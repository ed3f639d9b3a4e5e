"""Groups of ranks: the collectives of one world, on gloo or NCCL, and their construction in the background."""
