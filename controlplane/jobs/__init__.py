"""The jobs of a leading master: the registry, a runner and a shell for each job core, and their inputs."""
