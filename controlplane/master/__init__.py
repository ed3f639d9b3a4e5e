"""The master process: it leads while it holds the lease, and is a standby otherwise."""
