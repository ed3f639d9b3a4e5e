"""What every cluster of the fleet needs before workers can run in it, installed so often that it is there."""
