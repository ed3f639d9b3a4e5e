"""The one client and the one watch for Kubernetes: only this package imports kubernetes_asyncio.

The library brings the configuration (a pod's own, a kubeconfig with all its ways to log in) and the requests. Its typed
models are not used: building them takes ten times as long as the request itself.
"""
