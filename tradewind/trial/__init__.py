"""The trial on Google: checks of what only Google can show, each with one line that says what was found.

`deploy/gke-trial.sh` runs it, bounds its time and cleans up after it.
"""
