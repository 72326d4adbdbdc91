"""The Open Inference Protocol over gRPC (extra `grpc`), on the same batcher, keys and limits as HTTP.

The messages come from `open_inference.proto`, compiled to a descriptor set, in a descriptor pool of their own: a client
library that brings the same messages can be imported beside them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # type: ignore[import-untyped]

from bitedge.serve.api import oip
from bitedge.serve.api.errors import InternalError, ServeError
from bitedge.serve.api.health import health
from bitedge.serve.api.repository import load_model, repository_index
from bitedge.serve.api.tensors import ParsedInferRequest, check_request, encode, output_tensor
from bitedge.serve.inference.job import Answer
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.observability.context import RequestContext, error_log
from bitedge.serve.security.dependencies import Service
from bitedge.serve.settings import ServeSettings

SERVICE = "inference.GRPCInferenceService"
HEAD_BYTES = 1 << 20  # of a message, besides its tensors
CONTENTS = {"UINT8": "uint_contents", "FP32": "fp32_contents"}
STATUSES = {  # HTTP status: gRPC status; others are INVALID_ARGUMENT
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
Method = Callable[[Any, RequestContext], Any]  # request, context; the response, its fields, or an awaitable of these


@functools.cache
def message_class(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(messages().FindMessageTypeByName(f"inference.{name}"))


@functools.cache
def messages() -> Any:
    """Return the pool with the protocol's messages."""
    data = (resources.files("bitedge.serve") / "api" / "open_inference.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


def methods(service: Service, version: str) -> dict[str, tuple[str | None, Method]]:
    """Return every method with one response: its name, the scope that it needs, and how it is answered."""

    def model(request: Any) -> ServedModel:
        return service.registry.get(request.name, request.version)

    def model_ready(request: Any) -> dict[str, Any]:
        try:
            return {"ready": bool(model(request))}
        except ServeError:
            return {"ready": False}

    return {
        "ServerLive": (None, lambda *_: {"live": health(service)["live"]}),
        "ServerReady": (None, lambda *_: {"ready": health(service)["ready"]}),
        "ServerMetadata": ("infer", lambda *_: oip.server_metadata(version)),
        "ModelReady": ("infer", lambda request, _: model_ready(request)),
        "ModelMetadata": ("infer", lambda request, _: oip.model_metadata(service, model(request))),
        "ModelConfig": ("infer", lambda request, _: {"config": oip.model_config(service, model(request))}),
        "ModelStatistics": ("infer", lambda request, _: oip.statistics(service, request.name, request.version)),
        "ModelInfer": ("infer", functools.partial(infer, service)),
        "RepositoryIndex": (
            "infer",
            lambda request, _: {"models": repository_index(service, only_ready=request.ready)},
        ),
        "RepositoryModelLoad": (
            "admin",
            lambda request, _: load_model(service, request.model_name, request.parameters),
        ),
        "RepositoryModelUnload": ("admin", lambda request, _: service.change_unloaded(request.model_name, load=False)),
    }


async def infer(service: Service, request: Any, context: RequestContext) -> Any:
    """Run one inference."""
    model = service.registry.get(request.model_name, request.model_version)
    size = request.ByteSize()
    context.reserve(service.byte_budget, size)
    small = 0 if request.raw_input_contents else size  # raw bytes need no parsing
    parsed = await service.parse(parse_request, small, request, model, service.settings.max_images)
    return infer_response(model, await oip.run_tensor(service, model, parsed, context), parsed)


def parse_request(request: Any, model: ServedModel, max_images: int) -> ParsedInferRequest:
    """Check a ModelInferRequest against its model."""
    if len(request.inputs) != 1 or len(request.raw_input_contents) > 1:
        raise ServeError(f"expected one input, got {len(request.inputs)}")
    source = request.inputs[0]
    given = {"name": source.name, "shape": list(source.shape), "datatype": source.datatype}
    raw = b"".join(request.raw_input_contents)
    if request.raw_input_contents:
        given["parameters"] = {"binary_data_size": len(raw)}
    else:
        given["data"] = list(getattr(source.contents, CONTENTS[model.input_type]))
    outputs = [{"name": output.name, "parameters": plain(output.parameters)} for output in request.outputs]
    fields = {"id": request.id, "parameters": plain(request.parameters), "inputs": [given], "outputs": outputs}
    return check_request(fields, raw, model, max_images)


def plain(parameters: Any) -> dict[str, Any]:
    """Return parameters as a dictionary."""
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in parameters.items()}
    return {name: getattr(parameters[name], field) for name, field in chosen.items() if field is not None}


def infer_response(model: ServedModel, answer: Answer, parsed: ParsedInferRequest) -> Any:
    """Make a ModelInferResponse with raw contents."""
    output, texts = output_tensor(model, answer.outputs, parsed)
    return message_class("ModelInferResponse")(
        model_name=model.name,
        model_version=model.version,
        id=parsed.id,
        outputs=[output],
        raw_output_contents=[encode(answer.outputs, texts)],
    )


def begin(service: Service, name: str, rpc: Any) -> tuple[RequestContext, dict[str, str]]:
    """Begin the record of a call; return its headers, too."""
    headers = {key: value for key, value in rpc.invocation_metadata() if isinstance(value, str)}
    path, trace = f"/{SERVICE}/{name}", headers.get("traceparent", "")
    context = service.recorder.begin(headers.get("x-request-id"), trace, method="gRPC", path=path)
    context.route, context.caller, context.status = path, str(rpc.peer()).rpartition(":")[0], 200
    return context, headers


def failed(context: RequestContext, error: Exception) -> ServeError:
    """Record an error; faults of ours are logged."""
    if not isinstance(error, ServeError):
        fields = {"request_id": context.request_id, "path": context.path}
        error_log.error("request failed", exc_info=error, extra=fields)
        error = InternalError(f"internal error ({type(error).__name__}); request id {context.request_id}")
    context.status, context.reason = error.status, error.reason
    return error


def unary(service: Service, name: str, scope: str | None, method: Method) -> Any:
    """Return the handler of a method with one response."""
    request_type, response_type = message_class(f"{name}Request"), message_class(f"{name}Response")

    async def handle(request: Any, rpc: Any) -> Any:
        context, headers = begin(service, name, rpc)
        try:
            if scope is not None:
                service.authorize(scope, headers, context)
            result = method(request, context)
            result = await result if inspect.isawaitable(result) else result
            return result if isinstance(result, response_type) else json_format.ParseDict(result or {}, response_type())
        except Exception as error:
            failure = failed(context, error)
            status = grpc.StatusCode[STATUSES.get(failure.status, "INVALID_ARGUMENT")]
            await rpc.abort(status, str(failure), tuple(failure.headers().items()))
        finally:
            service.recorder.end(context)

    return grpc.unary_unary_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)


def stream(service: Service) -> Any:
    """Return the handler of ModelStreamInfer: one response, or error, for each request, in their order."""
    request_type, response_type = message_class("ModelInferRequest"), message_class("ModelStreamInferResponse")

    async def handle(requests: AsyncIterator[Any], rpc: Any) -> AsyncIterator[Any]:
        async for request in requests:
            context, headers = begin(service, "ModelStreamInfer", rpc)
            try:
                service.authorize("infer", headers, context)
                yield response_type(infer_response=await infer(service, request, context))
            except Exception as error:
                empty = message_class("ModelInferResponse")(model_name=request.model_name, id=request.id)
                yield response_type(error_message=str(failed(context, error)), infer_response=empty)
            finally:
                service.recorder.end(context)

    return grpc.stream_stream_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)


@asynccontextmanager
async def serving_grpc(service: Service, version: str) -> AsyncIterator[None]:
    """Serve gRPC on the running event loop."""
    settings = service.settings
    handlers = {name: unary(service, name, scope, call) for name, (scope, call) in methods(service, version).items()}
    handlers["ModelStreamInfer"] = stream(service)
    options = [
        ("grpc.max_receive_message_length", settings.max_body_bytes + HEAD_BYTES),
        ("grpc.max_metadata_size", settings.max_header_bytes),
        ("grpc.max_concurrent_streams", settings.queue),
        ("grpc.max_connection_idle_ms", int(settings.idle_seconds * 1_000)),
        ("grpc.so_reuseport", 1),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=settings.max_connections)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    add_port(server, settings)
    await server.start()
    try:
        yield
    finally:
        await server.stop(settings.drain_seconds)


def add_port(server: Any, settings: ServeSettings) -> None:
    """Listen beside HTTP, with the same certificates."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    if settings.tls_cert is None or settings.tls_key is None:
        server.add_insecure_port(address)
        return
    authority = settings.tls_client_ca.read_bytes() if settings.tls_client_ca else None
    pair = settings.tls_key.read_bytes(), settings.tls_cert.read_bytes()
    credentials = grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
    server.add_secure_port(address, credentials)
