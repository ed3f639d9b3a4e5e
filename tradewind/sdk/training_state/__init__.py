"""All that must survive when the world changes, and how it becomes bytes and state again."""
