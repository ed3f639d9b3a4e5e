"""Processes that are forked where torch is imported already: one server for all tests of a process."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.sdk.warm"])
