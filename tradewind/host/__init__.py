"""The host: a warm interpreter of the job that forks one trainer for each rank. See `tradewind.protocol.host`."""
