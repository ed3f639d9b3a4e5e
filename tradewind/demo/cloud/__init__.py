"""The demonstration with a cloud: machines come, are taken with and without a word, and come from elsewhere."""
