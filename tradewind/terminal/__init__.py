"""Terminal output: lines, numbers, tables, and work in the foreground."""
