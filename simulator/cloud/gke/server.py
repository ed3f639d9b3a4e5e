"""GKE's ClusterManager on grpc.aio. gRPC answers UNIMPLEMENTED for methods that are not simulated."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.cloud import container_v1
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from runtime.errors import UserError
from simulator.cloud.calls import CallLog
from simulator.cloud.gate import Gate
from simulator.cloud.gke.service import METHODS, GkeService, Method
from simulator.cloud.model.names import Path
from simulator.cloud.model.refusals import CONTAINER, Refusal

SERVICE = "google.container.v1.ClusterManager"
STOP_S = 0.5

Handle = Callable[[Any, Any], Awaitable[Any]]


class GkeServer:
    """A running gRPC server; `start` creates it."""

    def __init__(self, server: Any, port: int) -> None:
        self._server = server
        self.port = port

    @classmethod
    async def start(cls, service: GkeService, gate: Gate, calls: CallLog, host: str, port: int) -> "GkeServer":
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _handle(name, method, service, gate, calls),
                request_deserializer=method.request.deserialize,
                response_serializer=method.response.serialize,
            )
            for name, method in METHODS.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            raise UserError(f"GKE's API cannot listen on {host}:{port}.", "give --grpc-port a free port")
        await server.start()
        return cls(server, bound)

    async def stop(self) -> None:
        await self._server.stop(STOP_S)


def _handle(name: str, method: Method, service: GkeService, gate: Gate, calls: CallLog) -> Handle:
    gate.methods.add((CONTAINER, name))

    async def handle(request: Any, context: Any) -> Any:
        path = method.path(request)
        number = calls.arrived("gke", name, *_about(path, request))
        sent = _metadata(context)
        authorization, user_project = sent.get("authorization", ""), sent.get("x-goog-user-project", "")
        refusal = (
            path
            if isinstance(path, Refusal)
            else gate.refusal(CONTAINER, path.project, authorization, user_project, name)
        )
        answer = refusal if isinstance(path, Refusal) or refusal else await method.answer(service, path, request)
        calls.ended(number, answer.code.value if isinstance(answer, Refusal) else "OK")
        if isinstance(answer, Refusal):
            await _abort(context, answer)
        return answer

    return handle


async def _abort(context: Any, refusal: Refusal) -> None:
    code = grpc.StatusCode[refusal.code.value]
    status = status_pb2.Status(code=code.value[0], message=refusal.message)
    if refusal.reason:
        info = any_pb2.Any()
        info.Pack(error_details_pb2.ErrorInfo(reason=refusal.reason, domain=refusal.domain))
        status.details.append(info)
    details = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, refusal.message, trailing_metadata=details)


def _metadata(context: Any) -> dict[str, str]:
    return {key: str(value) for key, value in context.invocation_metadata() or ()}


def _about(path: Path | Refusal, request: Any) -> tuple[str, str]:
    """The target of a call, including what it creates, and the requested size."""
    parts = [] if isinstance(path, Refusal) else [path.project, path.location, path.cluster, path.pool, path.operation]
    detail = ""
    if isinstance(request, container_v1.CreateClusterRequest):
        parts.append(request.cluster.name)
    elif isinstance(request, container_v1.CreateNodePoolRequest):
        parts.append(request.node_pool.name)
        detail = f"node_count={request.node_pool.initial_node_count}"
    elif isinstance(request, container_v1.SetNodePoolSizeRequest):
        detail = f"node_count={request.node_count}"
    return "/".join(part for part in parts if part), detail
