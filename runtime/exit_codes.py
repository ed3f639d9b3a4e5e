"""Exit codes of all commands and roles; docs/commands.md explains them."""

EXIT_FAILED = 1
"""The job failed, or something remains to be done."""
EXIT_USER_ERROR = 2
"""Wrong use: a person must correct something before a retry helps."""
EXIT_UNREACHABLE = 3
"""Something does not answer; a retry may work."""
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
