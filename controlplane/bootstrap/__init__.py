"""The installation of what a cluster needs before workers can run in it. It may be repeated at any time."""
