"""A minimal stand-in for Google that can cause each outcome."""
