"""The training state: all that must survive changes of the world, and its conversion to bytes and back."""
