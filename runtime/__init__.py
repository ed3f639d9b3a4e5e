"""Parts that every process needs and no role owns: the role loop, bus, clock, settings, logs, errors, signals."""
