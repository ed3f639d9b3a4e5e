"""What every process needs and no role owns: the loop, the bus, clock, settings, logs, errors, signals."""
