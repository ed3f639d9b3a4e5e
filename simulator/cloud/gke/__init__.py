"""GKE's own gRPC API, answered with Google's own message classes. The only folder that imports google and grpc."""

import os

# Where regions share the process, pods are forked from it only to become other programs: gRPC's own care for forks
# gains nothing then, and was seen to break its connections. gRPC looks at this when its first port or channel opens.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
