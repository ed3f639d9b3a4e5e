"""Where a job should have its machines: a pure function of what is allowed, offered, seen, held and on its way."""
