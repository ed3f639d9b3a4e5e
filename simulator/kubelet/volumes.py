"""The folders that stand in for a pod's volumes, and the files of its service account.

A pod of a real cluster finds the API server by two variables and a certificate. Here the server speaks plain HTTP under
a path, so the pod gets a kubeconfig and the variable `KUBECONFIG`. Its token is replaced before it expires.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from simulator.kubelet.launch import CannotLaunch, Surroundings, data_of, field_of
from simulator.kubernetes.objects import Key, Obj, meta, spec_of
from simulator.kubernetes.resources import SERVICE_ACCOUNTS
from simulator.kubernetes.store import Store

ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def make_volumes(pod: Obj, folder: Path, node_folder: Path, around: Surroundings) -> dict[str, Path]:
    """Creates the volumes, by name. All pods of a node share its folders; other volumes belong to the pod."""
    made = {}
    for volume in spec_of(pod).get("volumes") or []:
        path = folder / "v" / volume["name"]
        if "hostPath" in volume:
            path = node_folder / "host" / str(volume["hostPath"]["path"]).lstrip("/")
        is_file = (volume.get("hostPath") or {}).get("type") in ("File", "FileOrCreate", "Socket")
        (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
        for name, content in _content(volume, pod, around).items():
            write_file(path / name, content)
        made[volume["name"]] = path
    return made


def mounts_of(container: Obj, volumes: dict[str, Path], account: Path | None) -> dict[str, Path]:
    found = {} if account is None else {ACCOUNT_PATH: account}
    for mount in container.get("volumeMounts") or []:
        path = volumes[mount["name"]]
        if mount.get("subPath"):
            path = path / mount["subPath"]
            if not path.exists():
                path.mkdir(parents=True)
        found[mount["mountPath"]] = path
    return found


def write_file(path: Path, content: bytes) -> None:
    """Writes a file atomically: a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def remove_folder(path: Path) -> None:
    """Removes a folder as far as possible: a process that is ending may still write."""
    for parent, folders, files in os.walk(path, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                Path(parent, name).unlink()
        for name in folders:
            with contextlib.suppress(OSError):
                inner = Path(parent, name)
                inner.unlink() if inner.is_symlink() else inner.rmdir()
    with contextlib.suppress(OSError):
        path.rmdir()


def _content(volume: Obj, pod: Obj, around: Surroundings) -> dict[str, bytes]:
    if "projected" in volume:
        sources = volume["projected"].get("sources") or []
        return {name: content for source in sources for name, content in _source(source, pod, around).items()}
    return _source(volume, pod, around)


def _source(source: Obj, pod: Obj, around: Surroundings) -> dict[str, bytes]:
    if "secret" in source:
        reference = source["secret"]
        name = reference.get("secretName") or reference.get("name", "")
        return _items(reference, around.secret(name), f'secret "{name}"')
    if "configMap" in source:
        reference = source["configMap"]
        return _items(reference, around.config_map(reference.get("name", "")), f'configmap "{reference.get("name")}"')
    if "downwardAPI" in source:
        items = source["downwardAPI"].get("items") or []
        reported = [each for each in items if "fieldRef" in each]
        return {each["path"]: field_of(pod, each["fieldRef"]["fieldPath"], around).encode() for each in reported}
    return {}


def _items(reference: Obj, obj: Obj | None, what: str) -> dict[str, bytes]:
    if obj is None:
        if reference.get("optional"):
            return {}
        raise CannotLaunch("FailedMount", f"MountVolume.SetUp failed: {what} not found")
    data = data_of(obj)
    if not reference.get("items"):
        return data
    missing = [each["key"] for each in reference["items"] if each["key"] not in data]
    if missing and not reference.get("optional"):
        raise CannotLaunch("FailedMount", f"MountVolume.SetUp failed: {what} has no key {missing[0]}")
    return {each["path"]: data[each["key"]] for each in reference["items"] if each["key"] in data}


ACCOUNT_FOLDER = "sa"
KUBECONFIG = "kubeconfig"


def account_of(pod: Obj, store: Store) -> Obj | None:
    """The pod's service account; None if the pod wants no token."""
    spec = spec_of(pod)
    account = store.find(SERVICE_ACCOUNTS, Key(meta(pod)["namespace"], spec.get("serviceAccountName", "default")))
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None and account is not None:
        wanted = account.get("automountServiceAccountToken")
    return None if wanted is False else account


def write_account(folder: Path, pod: Obj, cluster: str, endpoint: str, token: str) -> None:
    namespace = meta(pod)["namespace"]
    write_token(folder, token)
    write_file(folder / ACCOUNT_FOLDER / "namespace", namespace.encode())
    write_file(folder / ACCOUNT_FOLDER / "ca.crt", b"")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": endpoint}}],
        "users": [{"name": "pod", "user": {"tokenFile": str(folder / ACCOUNT_FOLDER / "token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": cluster, "user": "pod", "namespace": namespace}}],
        "current-context": "pod",
    }
    write_file(folder / KUBECONFIG, msgspec.json.format(msgspec.json.encode(config)))


def write_token(folder: Path, token: str) -> None:
    write_file(folder / ACCOUNT_FOLDER / "token", token.encode())
