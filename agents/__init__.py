"""The processes beside the user's scripts: cluster-controller, worker-agent and notice watcher."""
