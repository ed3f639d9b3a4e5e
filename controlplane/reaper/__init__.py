"""What is in the cloud with the fleet's label and belongs to nobody: found, told, and removed."""
