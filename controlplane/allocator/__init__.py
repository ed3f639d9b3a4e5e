"""The allocator core: from where a job's nodes come. Pure: it reads no clock and touches nothing."""
