"""Rules for live trainers: those with the SDK, which stay alive when the world changes."""
