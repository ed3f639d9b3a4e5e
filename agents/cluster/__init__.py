"""The cluster-controller: runs the workers of one cluster and reports them."""
