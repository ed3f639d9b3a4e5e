"""The API server's rules for pods: defaults, required fields, allowed changes."""

import re
from typing import Any

from simulator.kubernetes import quantities
from simulator.kubernetes.objects import Obj
from simulator.kubernetes.problems import Cause

SYSTEM_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_WITH_MODE = frozenset({"secret", "configMap", "downwardAPI", "projected"})
_REQUIRED = "FieldValueRequired"
_EVICTING = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TYPES: tuple[tuple[str, type], ...] = (("command", list), ("args", list), ("env", list), ("volumeMounts", list))


def complete(pod: Obj, toleration_s: int) -> None:
    """Completes a new pod and resets its status to `Pending`."""
    spec = pod.setdefault("spec", {})
    if not isinstance(spec.get("containers"), list):
        return
    complete_template(spec)
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("enableServiceLinks", True)
    if spec.get("priorityClassName") in SYSTEM_PRIORITIES:
        spec["priority"] = SYSTEM_PRIORITIES[spec["priorityClassName"]]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = list(spec.get("tolerations") or [])
    for key in _EVICTING:
        if not any(_concerns(each, key) for each in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": toleration_s}
            tolerations.append(toleration)
    spec["tolerations"] = tolerations
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def complete_template(spec: Obj) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or []:
        for kind in _WITH_MODE & volume.keys():
            volume[kind].setdefault("defaultMode", 0o644)
    for container in _containers(spec):
        for variable in container.get("env") or []:
            reference = (variable.get("valueFrom") or {}).get("fieldRef")
            if reference is not None:
                reference.setdefault("apiVersion", "v1")
        container.setdefault("imagePullPolicy", _pull_policy(str(container.get("image", ""))))
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        limits, requests = resources.get("limits"), resources.get("requests") or {}
        if limits:
            resources["requests"] = {**{name: str(amount) for name, amount in limits.items()}, **requests}


def _pull_policy(image: str) -> str:
    """The default pull policy: an image whose name can change its content is always pulled."""
    _, colon, tag = image.rpartition("/")[2].partition(":")
    is_latest = not colon or tag == "latest"
    return "Always" if is_latest and "@" not in image else "IfNotPresent"


def causes(spec: Obj, path: str) -> list[Cause]:
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        return [Cause(f"{path}.containers", "Required value", _REQUIRED)]
    found: list[Cause] = []
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    for index, volume in enumerate(spec.get("volumes") or []):
        found += _volume_causes(volume, f"{path}.volumes[{index}]")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            at = f"{path}.{field}[{index}]"
            found += _container_causes(container, at, volumes)
            if container.get("name") in names:
                found.append(Cause(f"{at}.name", f'Duplicate value: "{container["name"]}"', "FieldValueDuplicate"))
            names.add(str(container.get("name")))
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        text = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
        found.append(Cause(f"{path}.restartPolicy", text, "FieldValueNotSupported"))
    return found


def forbidden_changes(before: Obj, after: Obj) -> list[Cause]:
    """Causes for forbidden changes: only images, added tolerations and the deadline may change."""
    if _frozen(before) != _frozen(after):
        text = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        return [Cause("spec", text, "FieldValueForbidden")]
    missing = [each for each in before.get("tolerations") or [] if each not in (after.get("tolerations") or [])]
    if missing:
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        return [Cause("spec.tolerations", text, "FieldValueForbidden")]
    return []


def requests_of(spec: Obj) -> dict[str, Any]:
    """Resources that a pod needs: the total of its containers, or the largest init container."""
    total: dict[str, Any] = {}
    for container in spec.get("containers") or []:
        for name, amount in _requests(container).items():
            total[name] = total.get(name, 0) + quantities.parse(amount)
    for container in spec.get("initContainers") or []:
        for name, amount in _requests(container).items():
            total[name] = max(total.get(name, 0), quantities.parse(amount))
    return total


def is_critical(pod: Obj) -> bool:
    """True for a pod that ends last when its node shuts down."""
    return (pod.get("spec") or {}).get("priorityClassName") in SYSTEM_PRIORITIES


def _containers(spec: Obj) -> list[Obj]:
    found = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return [each for each in found if isinstance(each, dict)]


def _container_causes(container: Any, at: str, volumes: set[Any]) -> list[Cause]:
    missing = [field for field in ("name", "image") if not container.get(field)]
    found = [Cause(f"{at}.{field}", "Required value", _REQUIRED) for field in missing]
    if container.get("name") and not LABEL.match(container["name"]):
        found.append(Cause(f"{at}.name", f'Invalid value: "{container["name"]}": must be a lowercase RFC 1123 label'))
    for field, wanted in _TYPES:
        if container.get(field) is not None and not isinstance(container[field], wanted):
            return [*found, Cause(f"{at}.{field}", "Invalid value: must be a list")]
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            found.append(Cause(f"{at}.env[{index}].name", "Required value", _REQUIRED))
        if variable.get("value") and variable.get("valueFrom"):
            text = "Invalid value: may not be specified when `value` is not empty"
            found.append(Cause(f"{at}.env[{index}].valueFrom", text))
        found += _reference_causes(variable.get("valueFrom") or {}, f"{at}.env[{index}].valueFrom")
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            text = f'Not found: "{mount.get("name")}"'
            found.append(Cause(f"{at}.volumeMounts[{index}].name", text, "FieldValueNotFound"))
        if not mount.get("mountPath"):
            found.append(Cause(f"{at}.volumeMounts[{index}].mountPath", "Required value", _REQUIRED))
        found += _path_causes(mount.get("subPath"), f"{at}.volumeMounts[{index}].subPath")
    return found


def _volume_causes(volume: Obj, at: str) -> list[Cause]:
    if not volume.get("name") or not LABEL.match(volume["name"]):
        return [Cause(f"{at}.name", "Invalid value: must be a lowercase RFC 1123 label")]
    found: list[Cause] = []
    if "hostPath" in volume:
        path = volume["hostPath"].get("path")
        found += _path_causes(path, f"{at}.hostPath.path", absolute=True)
        if not path:
            found.append(Cause(f"{at}.hostPath.path", "Required value", _REQUIRED))
    for source in (volume, *((volume.get("projected") or {}).get("sources") or [])):
        for kind in ("secret", "configMap", "downwardAPI"):
            for index, item in enumerate((source.get(kind) or {}).get("items") or []):
                here = f"{at}.{kind}.items[{index}]"
                found += _path_causes(item.get("path"), f"{here}.path")
                if not item.get("path") or (kind != "downwardAPI" and not item.get("key")):
                    found.append(Cause(here, "Required value: an item has a key and a path", _REQUIRED))
                found += _reference_causes(item, here)
    return found


def _reference_causes(source: Obj, at: str) -> list[Cause]:
    found = []
    if "fieldRef" in source and not source["fieldRef"].get("fieldPath"):
        found.append(Cause(f"{at}.fieldRef.fieldPath", "Required value", _REQUIRED))
    divisor = (source.get("resourceFieldRef") or {}).get("divisor")
    if divisor is not None and not quantities.is_quantity(divisor):
        found.append(Cause(f"{at}.resourceFieldRef.divisor", f'Invalid value: "{divisor}": must be a quantity'))
    return found


def _path_causes(path: str | None, at: str, *, absolute: bool = False) -> list[Cause]:
    if path and (".." in path.split("/") or (path.startswith("/") and not absolute)):
        return [Cause(at, f'Invalid value: "{path}": must not point outside its volume')]
    return []


def _frozen(spec: Obj) -> Obj:
    kept = {
        name: value
        for name, value in spec.items()
        if name not in ("tolerations", "activeDeadlineSeconds", "containers", "initContainers", "nodeName")
    }
    for field in ("containers", "initContainers"):
        containers = spec.get(field) or []
        kept[field] = [{name: value for name, value in each.items() if name != "image"} for each in containers]
    return {**kept, "nodeName": spec.get("nodeName")}


def _concerns(toleration: Obj, key: str) -> bool:
    return toleration.get("effect", "NoExecute") == "NoExecute" and toleration.get("key") in (key, None, "")


def _quality(spec: Obj) -> str:
    containers = _containers(spec)
    needs = [_requests(each) for each in containers]
    limits = [(each.get("resources") or {}).get("limits") or {} for each in containers]
    if not any(needs) and not any(limits):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= limit.keys() and all(need.get(name) == limit[name] for name in ("cpu", "memory"))
        for need, limit in zip(needs, limits, strict=True)
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _requests(container: Obj) -> dict[str, Any]:
    return (container.get("resources") or {}).get("requests") or {}
