"""The trainer's pure core: its world, its step and its reports. Threads feed it through `shell.py`."""
