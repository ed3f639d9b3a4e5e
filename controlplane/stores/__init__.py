"""The TCPStore processes in which ranks meet."""
