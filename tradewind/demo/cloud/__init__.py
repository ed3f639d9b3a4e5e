"""The demonstration with a cloud: machines are preempted, with and without notice, and replaced."""
