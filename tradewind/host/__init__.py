"""The host: a process that has imported torch and forks one trainer for each rank. See `tradewind.protocol.host`."""
