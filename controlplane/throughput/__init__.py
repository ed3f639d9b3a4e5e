"""How fast a job trains in a place, and what that costs: pure arithmetic from a profile, a placement and the links."""
