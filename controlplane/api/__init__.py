"""The HTTP API of a leading master, for people and the `tradewind` command."""
