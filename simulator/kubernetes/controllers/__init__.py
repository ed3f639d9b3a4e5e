"""The controllers of a cluster: each is a pure function from what there is to what should be done about it."""
