"""The error of a failed call. Both of Google's APIs report errors with gRPC's codes."""

from enum import StrEnum

from runtime.errors import TradewindError


class Code(StrEnum):
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


UNANSWERED = frozenset(
    {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNKNOWN, Code.CANCELLED, Code.DATA_LOSS}
)
"""Codes after which it is unknown whether Google performed the call; a read may be retried."""


class CallFailed(TradewindError):
    def __init__(self, code: Code, message: str, *reasons: str, hint: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reasons = tuple(filter(None, reasons))
        """Google's constants, such as `SERVICE_DISABLED` or `resourceNotReady`; there may be several."""
        self.hint = hint
        """What a person should do; if it is not empty, it overrides the rules of `rules.py`."""


def code_named(name: str) -> Code:
    return Code(name) if name in Code.__members__ else Code.UNKNOWN


def code_numbered(number: int) -> Code:
    """The code with this number in google.rpc.Code: 1 to 16."""
    return _BY_NUMBER[number - 1] if 1 <= number <= len(_BY_NUMBER) else Code.UNKNOWN


_BY_NUMBER = tuple(Code)
