"""What people see on a terminal: lines, numbers, tables, and work in the foreground."""
