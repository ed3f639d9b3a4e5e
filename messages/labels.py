"""Labels, annotations, secret keys and file names that two processes agree on.

They are never renamed: objects in a running cluster still carry the old names.
"""

JOB_LABEL = "tradewind-job"
"""The job that a node pool, a node or a worker pod belongs to; also the key of the taint that keeps other pods away."""
POOL_LABEL = "tradewind-pool"
"""The name of the node pool, which the pool's nodes have too."""
FLEET_LABEL = "tradewind-fleet"
"""The fleet that a cluster, a pool or an installed object belongs to."""
LEASE_LABEL = "tradewind-lease"
"""Unix seconds at which a pool was requested."""
BUS_LABEL = "tradewind-bus"
"""The bus whose masters own a pool."""

APP_LABEL = "app"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "tradewind"

NOTICE_ANNOTATION = "tradewind.dev/notice-deadline"
"""On a node: Unix seconds at which the machine ends."""
NOTICE_WHY_ANNOTATION = "tradewind.dev/notice-why"
NOTICE_BOOT_ANNOTATION = "tradewind.dev/notice-boot"
"""Boot id of the machine that the notice is for: the next machine may get the same node object."""
NOTICED_LABEL = "tradewind-noticed"
"""On a node with a notice, so that no further worker is scheduled there."""

NATS_URL_KEY = "nats-url"
NATS_CREDENTIALS_KEY = "nats.creds"
"""Keys of the secret with which pods reach the bus."""

HOST_SOCKET = "host.sock"
"""The socket in a worker's folder to which its host connects."""
