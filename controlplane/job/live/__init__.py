"""Rules for trainers that live through changes of the world (with the SDK)."""
