"""What a training script uses to live through changes of the world: `tradewind.Run`. Needs torch, nothing else."""
