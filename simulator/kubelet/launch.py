"""Derives arguments, environment and working directory from a container's spec."""

import base64
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulator.kubelet.images import ImageRuntime
from simulator.kubernetes import quantities
from simulator.kubernetes.objects import Obj, labels_of, meta, spec_of

INHERITED = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
_KEYED = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")
_INTERPRETERS = ("python", "python3")


class CannotLaunch(Exception):
    """A container cannot be started; reason and message are those of a kubelet."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a pod gets from its node."""

    node_name: str
    pod_ip: str
    host_ip: str
    scratch: Path
    """The working directory of a container that names none."""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Real folders, by the path at which the container mounts them."""
    added_env: Mapping[str, str] = field(default_factory=dict)
    secret: Callable[[str], Obj | None] = lambda name: None
    config_map: Callable[[str], Obj | None] = lambda name: None


def launch_of(pod: Obj, container: Obj, runtime: ImageRuntime, around: Surroundings) -> Launch:
    substitute = substitution(around.mounts)
    env = _environment(pod, container, runtime, around, substitute)
    command = [*(container.get("command") or runtime.entrypoint), *(container.get("args") or [])]
    if not container.get("command") and not runtime.entrypoint:
        raise CannotLaunch("RunContainerError", "no command specified: the image has no entrypoint here")
    argv = [substitute(_expand(str(part), env)) for part in command]
    working_dir = container.get("workingDir")
    cwd = Path(substitute(working_dir)) if working_dir else around.scratch
    if not cwd.is_dir():
        raise CannotLaunch("RunContainerError", f"working directory {cwd} does not exist")
    return Launch((_program(argv[0], runtime, env["PATH"], cwd), *argv[1:]), env, cwd)


def substitution(mounts: Mapping[str, Path]) -> Callable[[str], str]:
    """A function that replaces mounted paths in a text by the real folders."""
    real = {path.rstrip("/"): str(folder) for path, folder in mounts.items() if path.rstrip("/")}
    if not real:
        return lambda text: text
    longest_first = sorted(real, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w./-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w.-])")
    return lambda text: pattern.sub(lambda found: real[found[1]], text)


def field_of(pod: Obj, path: str, around: Surroundings) -> str:
    """The value of a `fieldRef`."""
    keyed = _KEYED.match(path)
    if keyed:
        return str((meta(pod).get(keyed[1]) or {}).get(keyed[2], ""))
    known: dict[str, str] = {
        "metadata.name": meta(pod)["name"],
        "metadata.namespace": meta(pod).get("namespace", ""),
        "metadata.uid": meta(pod)["uid"],
        "metadata.labels": _lines(labels_of(pod)),
        "metadata.annotations": _lines(meta(pod).get("annotations") or {}),
        "spec.nodeName": around.node_name,
        "spec.serviceAccountName": spec_of(pod).get("serviceAccountName", "default"),
        "status.podIP": around.pod_ip,
        "status.podIPs": around.pod_ip,
        "status.hostIP": around.host_ip,
        "status.hostIPs": around.host_ip,
    }
    if path not in known:
        raise CannotLaunch("CreateContainerConfigError", f"unsupported fieldPath: {path}")
    return known[path]


def data_of(obj: Obj) -> dict[str, bytes]:
    """The content of a secret or config map."""
    if obj["kind"] == "Secret":
        return {name: base64.b64decode(text) for name, text in (obj.get("data") or {}).items()}
    plain = {name: str(text).encode() for name, text in (obj.get("data") or {}).items()}
    return plain | {name: base64.b64decode(text) for name, text in (obj.get("binaryData") or {}).items()}


def _environment(
    pod: Obj, container: Obj, runtime: ImageRuntime, around: Surroundings, substitute: Callable[[str], str]
) -> dict[str, str]:
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    env["PATH"] = runtime.search_path(os.environ.get("PATH", os.defpath))
    env["HOME"] = str(around.scratch)
    env["HOSTNAME"] = str(spec_of(pod).get("hostname") or meta(pod)["name"])
    env |= around.added_env
    for source in container.get("envFrom") or []:
        env |= _whole(source, around)
    for variable in container.get("env") or []:
        name = variable["name"]
        if variable.get("valueFrom"):
            value = _value_from(pod, container, variable["valueFrom"], around)
            if value is not None:
                env[name] = value
        else:
            env[name] = substitute(_expand(str(variable.get("value") or ""), env))
    return env


def _whole(source: Obj, around: Surroundings) -> dict[str, str]:
    reference = source.get("secretRef") or source.get("configMapRef") or {}
    obj = _referenced("secret" if source.get("secretRef") else "configmap", reference, around)
    prefix = source.get("prefix") or ""
    return (
        {}
        if obj is None
        else {f"{prefix}{name}": value.decode(errors="surrogateescape") for name, value in data_of(obj).items()}
    )


def _value_from(pod: Obj, container: Obj, source: Obj, around: Surroundings) -> str | None:
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"], around)
    if "resourceFieldRef" in source:
        return _amount(container, source["resourceFieldRef"])
    kind = "secret" if "secretKeyRef" in source else "configmap"
    reference = source.get("secretKeyRef") or source.get("configMapKeyRef") or {}
    obj = _referenced(kind, reference, around)
    if obj is None:
        return None
    data, key = data_of(obj), reference.get("key", "")
    if key in data:
        return data[key].decode(errors="surrogateescape")
    if reference.get("optional"):
        return None
    text = f"couldn't find key {key} in {kind} {meta(pod).get('namespace')}/{reference.get('name')}"
    raise CannotLaunch("CreateContainerConfigError", text)


def _referenced(kind: str, reference: Obj, around: Surroundings) -> Obj | None:
    """The secret or config map; None if it is optional and missing."""
    name = reference.get("name", "")
    obj = around.secret(name) if kind == "secret" else around.config_map(name)
    if obj is None and not reference.get("optional"):
        raise CannotLaunch("CreateContainerConfigError", f'{kind} "{name}" not found')
    return obj


def _amount(container: Obj, reference: Obj) -> str:
    kind, _, name = str(reference.get("resource", "")).partition(".")
    reported = ((container.get("resources") or {}).get(kind) or {}).get(name, "0")
    divisor = quantities.parse(reference.get("divisor") or "1") or 1
    return str(-int(-quantities.parse(reported) // divisor))


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Expands `$(NAME)` if the variable exists; `$$` is a dollar."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return env.get(found[2], found[0])

    return _REFERENCE.sub(replaced, text)


def _program(name: str, runtime: ImageRuntime, path: str, cwd: Path) -> str:
    if name in _INTERPRETERS:
        return runtime.interpreter()
    found = shutil.which(str(cwd / name)) if "/" in name else shutil.which(name, path=path)
    if found is None:
        raise CannotLaunch("StartError", f'exec: "{name}": executable file not found in $PATH')
    return found


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f'{name}="{value}"' for name, value in values.items())
