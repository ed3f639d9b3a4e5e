"""What a job does in each phase until the next is due."""
