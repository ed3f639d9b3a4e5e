"""The Kubernetes client and watch. Only this package imports kubernetes_asyncio.

The library provides the configuration (from a pod or a kubeconfig, with all logins) and the requests. Its typed models
are not used, because building them takes ten times as long as the request itself.
"""
