"""The cloud as a pure core: requests, state, and what changes as time passes."""
