"""The master: the hands of the job cores. Loads, adopts, routes, performs, and answers people over HTTP."""
