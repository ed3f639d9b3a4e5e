"""The worker-agent: carries out the assignments of a job on one node."""
