"""Protocols of the processes on one worker: agent and host, agent and trainer.

Both ends import them from here. They need only the standard library, so that they load in any environment of a job.
"""
