"""The spot market: capacity and price of each accelerator in each zone over time."""
