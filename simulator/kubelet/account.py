"""The identity of a pod, as files: a token that is replaced before it expires, and a kubeconfig that names it.

A pod of a real cluster finds the API server by two variables and a certificate. Here the server speaks plain HTTP under
a path, so the pod is given a kubeconfig instead, and `KUBECONFIG` to find it.
"""

from pathlib import Path

import msgspec

from simulator.kubelet.volumes import write_file
from simulator.kubernetes.objects import Key, Obj, meta, spec_of
from simulator.kubernetes.resources import SERVICE_ACCOUNTS
from simulator.kubernetes.store import Store

FOLDER = "sa"
KUBECONFIG = "kubeconfig"


def account_of(pod: Obj, store: Store) -> Obj | None:
    """None when the pod wants no identity."""
    spec = spec_of(pod)
    account = store.find(SERVICE_ACCOUNTS, Key(meta(pod)["namespace"], spec.get("serviceAccountName", "default")))
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None and account is not None:
        wanted = account.get("automountServiceAccountToken")
    return None if wanted is False else account


def write_account(folder: Path, pod: Obj, cluster: str, endpoint: str, token: str) -> None:
    namespace = meta(pod)["namespace"]
    write_token(folder, token)
    write_file(folder / FOLDER / "namespace", namespace.encode())
    write_file(folder / FOLDER / "ca.crt", b"")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": endpoint}}],
        "users": [{"name": "pod", "user": {"tokenFile": str(folder / FOLDER / "token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": cluster, "user": "pod", "namespace": namespace}}],
        "current-context": "pod",
    }
    write_file(folder / KUBECONFIG, msgspec.json.format(msgspec.json.encode(config)))


def write_token(folder: Path, token: str) -> None:
    write_file(folder / FOLDER / "token", token.encode())
