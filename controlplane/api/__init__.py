"""The HTTP API: what people and the `tradewind` command ask of a leading master."""
