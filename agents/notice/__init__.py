"""The notice watcher: hears from the cloud that its node will end, and writes that on the node."""
