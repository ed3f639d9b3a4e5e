"""The fleet: the clusters we may use and the machines we may ask for, from one file."""
