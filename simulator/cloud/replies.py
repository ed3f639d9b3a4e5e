"""JSON over HTTP: checked bodies, answers, errors in Google's form."""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from runtime.errors import UserError
from runtime.problems import decode_checked
from simulator.cloud.model.refusals import Code, Refusal

T = TypeVar("T")

_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.UNAUTHENTICATED: 401,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 412,
    Code.ABORTED: 409,
    Code.INTERNAL: 500,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
}
_REASONS = {
    Code.INVALID_ARGUMENT: "invalid",
    Code.NOT_FOUND: "notFound",
    Code.ALREADY_EXISTS: "alreadyExists",
    Code.PERMISSION_DENIED: "forbidden",
    Code.UNAUTHENTICATED: "required",
    Code.RESOURCE_EXHAUSTED: "rateLimitExceeded",
    Code.FAILED_PRECONDITION: "conditionNotMet",
    Code.ABORTED: "aborted",
    Code.INTERNAL: "internalError",
    Code.UNIMPLEMENTED: "notImplemented",
    Code.UNAVAILABLE: "backendError",
}


def reply(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


async def body_of(request: web.Request, wanted: type[T]) -> T | web.Response:
    """The decoded body, or the error response for an invalid one."""
    try:
        data = msgspec.json.decode(await request.read() or b"{}")
        return decode_checked(wanted, data, what="The body")
    except msgspec.DecodeError as error:
        return mistake(f"The body is not JSON: {error}")
    except UserError as error:
        return mistake(str(error))


def mistake(message: str, status: int = 400) -> web.Response:
    return reply({"error": message}, status)


def google_error(refusal: Refusal) -> web.Response:
    status = _STATUS[refusal.code]
    reason = "accessNotConfigured" if refusal.reason == "SERVICE_DISABLED" else _REASONS[refusal.code]
    is_plain = refusal.reason[:1].islower()
    if is_plain:
        reason = refusal.reason
    error: dict[str, Any] = {
        "code": status,
        "message": refusal.message,
        "status": refusal.code.value,
        "errors": [{"message": refusal.message, "domain": "global", "reason": reason}],
    }
    if refusal.reason and not is_plain:
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": refusal.reason, "domain": refusal.domain}
        error["details"] = [info]
    answer = reply({"error": error}, status)
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="https://accounts.google.com/"'
    return answer


def rfc3339(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")
