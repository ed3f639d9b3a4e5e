"""The spot market: what each zone can give of each accelerator, and at what price, as time goes by."""
