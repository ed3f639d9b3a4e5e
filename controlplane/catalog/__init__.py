"""What machines are offered where and at what price, how zones are connected, and what was seen of them."""
