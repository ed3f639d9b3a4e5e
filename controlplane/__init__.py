"""The master: what it knows of jobs, what it decides, and the shell that carries it out."""
