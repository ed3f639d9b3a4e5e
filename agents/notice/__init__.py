"""The notice watcher: receives the cloud's notices for its node and writes them on the node."""
