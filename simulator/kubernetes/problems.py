"""Refusals of an API server as Status objects of Kubernetes."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.errors import TradewindError
from simulator.kubernetes.objects import Obj


@dataclass(frozen=True, slots=True)
class Cause:
    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiProblem(TradewindError):
    """A refusal, sent to the client as an HTTP status and a Status object."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def status(self) -> Obj:
        found: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }
        if self.details is not None:
            found["details"] = self.details
        return found


def bad_request(message: str) -> ApiProblem:
    return ApiProblem(400, "BadRequest", message)


def unauthorized() -> ApiProblem:
    return ApiProblem(401, "Unauthorized", "Unauthorized")


def forbidden(what: str, name: str, why: str, details: Obj | None = None) -> ApiProblem:
    message = f'{what} "{name}" is forbidden: {why}' if name else f"{what} is forbidden: {why}"
    return ApiProblem(403, "Forbidden", message, details or _details(what, name))


def forbidden_path(user: str, verb: str, path: str) -> ApiProblem:
    return ApiProblem(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def not_found(what: str, name: str) -> ApiProblem:
    return ApiProblem(404, "NotFound", f'{what} "{name}" not found', _details(what, name))


def no_such_path() -> ApiProblem:
    return ApiProblem(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiProblem:
    message = "the server does not allow this method on the requested resource"
    return ApiProblem(405, "MethodNotAllowed", message, {})


def already_exists(what: str, name: str) -> ApiProblem:
    message = f'{what} "{name}" already exists'
    return ApiProblem(409, "AlreadyExists", message, _details(what, name))


def conflict(what: str, name: str, why: str = "") -> ApiProblem:
    reason = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {what} "{name}": {reason}'
    return ApiProblem(409, "Conflict", message, _details(what, name))


def apply_conflict(causes: Sequence[Cause]) -> ApiProblem:
    noun = "1 conflict" if len(causes) == 1 else f"{len(causes)} conflicts"
    message = f"Apply failed with {noun}: " + "; ".join(f"{cause.message}: {cause.field}" for cause in causes)
    return ApiProblem(409, "Conflict", message, {"causes": _reported(causes)})


def gone(message: str) -> ApiProblem:
    return ApiProblem(410, "Expired", message)


def unsupported_media_type() -> ApiProblem:
    return ApiProblem(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def bad_patch() -> ApiProblem:
    """The refusal of an invalid patch; like the real server, it does not name the error."""
    return ApiProblem(422, "Invalid", "the server rejected our request due to an error in our request", {})


def invalid(kind: str, name: str, causes: Sequence[Cause], group: str = "") -> ApiProblem:
    listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    text = listed if len(causes) == 1 else f"[{listed}]"
    title = f"{kind}.{group}" if group else kind
    details = {**_details(title, name), "causes": _reported(causes)}
    return ApiProblem(422, "Invalid", f'{title} "{name}" is invalid: {text}', details)


def bad_options(kind: str, cause: Cause) -> ApiProblem:
    """The refusal of invalid ListOptions, DeleteOptions and similar options."""
    return invalid(kind, "", [cause], "meta.k8s.io")


def too_large_version(asked: int, current: int) -> ApiProblem:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return ApiProblem(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def success(details: Obj | None = None, code: int | None = None) -> Obj:
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**status, **({"details": details} if details else {}), **({"code": code} if code else {})}


def _details(what: str, name: str) -> Obj:
    kind, _, group = what.partition(".")
    return {**({"name": name} if name else {}), **({"group": group} if group else {}), "kind": kind}


def _reported(causes: Sequence[Cause]) -> list[Obj]:
    return [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
