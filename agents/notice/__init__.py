"""The notice daemon: hears from the cloud that its node will be taken, and writes that on the node for all to see."""
