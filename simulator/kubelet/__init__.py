"""A node's agent: runs each container of a pod as a local process with its own environment, folders and log.

There is no isolation: an image is only a name, and there are no mounts. The agent replaces mounted paths in a
container's command, arguments, working directory and environment by the real folders.
"""
