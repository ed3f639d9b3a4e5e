"""Machines by zone with their prices, the links between zones, and observations of zones."""
