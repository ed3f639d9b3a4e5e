"""The trainer's pure core: its world, its step and its reports. Threads send it events through `shell.py`."""
