"""The controllers of a cluster: each is a pure function from objects to actions."""
