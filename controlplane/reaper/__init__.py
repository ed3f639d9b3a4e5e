"""The reaper: finds, announces and removes resources with the fleet's label that belong to no live job."""
