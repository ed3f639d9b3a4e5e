"""The jobs of a leading master: a registry, a runner and a shell beside each job core, and what feeds them."""
