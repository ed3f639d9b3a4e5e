"""The job core: membership, generations and ranks of one job. Pure: it reads no clock and touches nothing."""
