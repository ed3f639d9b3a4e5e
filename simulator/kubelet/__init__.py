"""A node's agent: runs each container of a pod as a local process, with its own environment, folders, log and life.

There is no container: an image is only a name, and there are no mounts. Where a container's command, arguments, working
directory or environment speak of a path that it mounts, they are given the real folder instead.
"""
