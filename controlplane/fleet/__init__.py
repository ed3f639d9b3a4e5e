"""The fleet file: the clusters that jobs may use and the machines that they may request."""
