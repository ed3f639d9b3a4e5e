"""GKE's gRPC API with Google's message classes. The only folder that imports google and grpc."""

import os

# If regions share the process, it forks pods, which exec other programs at once. gRPC's fork support is useless then,
# and broke gRPC's connections in tests. gRPC reads this variable when its first port or channel opens.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
