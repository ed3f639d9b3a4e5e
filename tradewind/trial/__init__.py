"""The trial on Google: checks that only Google can answer. Each prints one line with its result.

`deploy/gke-trial.sh` runs the trial, limits its time and cleans up after it.
"""
