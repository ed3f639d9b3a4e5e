"""The allocator core: decides where a job's nodes come from. Pure: it reads no clock and performs no effects."""
