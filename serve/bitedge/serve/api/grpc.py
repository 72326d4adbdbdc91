"""The Open Inference Protocol over gRPC (extra `grpc`), on the same batcher, keys and limits as HTTP.

The messages come from `open_inference.proto`, compiled to a descriptor set, in a descriptor pool of their own: a client
library that brings the same messages can be imported beside them.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # type: ignore[import-untyped]

from bitedge.serve.api.errors import InternalError, ServeError
from bitedge.serve.api.health import health
from bitedge.serve.api.oip import metadata_of_server, model_config, model_metadata, run_tensor, statistics
from bitedge.serve.api.repository import repository_index
from bitedge.serve.api.schemas import RequestInput, RequestOutput
from bitedge.serve.api.tensors import (
    ParsedInferRequest,
    class_strings,
    encode_bytes,
    read_input,
    read_output,
    read_timeout,
)
from bitedge.serve.inference.job import Answer
from bitedge.serve.models.backends import ServedModel
from bitedge.serve.observability.context import RequestContext, error_log
from bitedge.serve.security.dependencies import Service

SERVICE = "inference.GRPCInferenceService"
HEAD_BYTES = 1 << 20  # of a message, besides its tensors
CONTENTS = {"UINT8": "uint_contents", "FP32": "fp32_contents"}
Method = Callable[[Any, RequestContext], Awaitable[dict[str, Any]]]


@functools.cache
def messages() -> Any:
    """Return the pool with the protocol's messages."""
    data = (resources.files("bitedge.serve") / "api" / "open_inference.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


def message(name: str, fields: dict[str, Any]) -> Any:
    """Make a message from plain data."""
    return json_format.ParseDict(fields, message_class(name)())


def message_class(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(messages().FindMessageTypeByName(f"inference.{name}"))


class InferenceService:
    """The methods; each takes a request and returns the fields of its response."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._version = version

    def methods(self) -> dict[str, tuple[str | None, Method]]:
        """Return every method with one response, and the scope that it needs."""
        return {
            "ServerLive": (None, self._live),
            "ServerReady": (None, self._ready),
            "ServerMetadata": ("infer", self._server_metadata),
            "ModelReady": ("infer", self._model_ready),
            "ModelMetadata": ("infer", self._model_metadata),
            "ModelConfig": ("infer", self._model_config),
            "ModelStatistics": ("infer", self._statistics),
            "RepositoryIndex": ("infer", self._index),
            "RepositoryModelLoad": ("admin", self._load),
            "RepositoryModelUnload": ("admin", self._unload),
        }

    async def _live(self, _: Any, __: RequestContext) -> dict[str, Any]:
        return {"live": health(self._service)["live"]}

    async def _ready(self, _: Any, __: RequestContext) -> dict[str, Any]:
        return {"ready": health(self._service)["ready"]}

    async def _server_metadata(self, _: Any, __: RequestContext) -> dict[str, Any]:
        return metadata_of_server(self._version)

    async def _model_ready(self, request: Any, _: RequestContext) -> dict[str, Any]:
        try:
            self._model(request.name, request.version)
        except ServeError:
            return {"ready": False}
        return {"ready": True}

    async def _model_metadata(self, request: Any, _: RequestContext) -> dict[str, Any]:
        return model_metadata(self._service, self._model(request.name, request.version))

    async def _model_config(self, request: Any, _: RequestContext) -> dict[str, Any]:
        return {"config": model_config(self._service, self._model(request.name, request.version))}

    async def _statistics(self, request: Any, _: RequestContext) -> dict[str, Any]:
        return await statistics(self._service, request.name or None, request.version or None)

    async def _index(self, request: Any, _: RequestContext) -> dict[str, Any]:
        return {"models": repository_index(self._service, only_ready=request.ready)}

    async def _load(self, request: Any, _: RequestContext) -> dict[str, Any]:
        if request.parameters:
            raise ServeError("a model comes from its folder alone; load takes no configuration or files")
        await self._service.change_unloaded(request.model_name, load=True)
        return {}

    async def _unload(self, request: Any, _: RequestContext) -> dict[str, Any]:
        await self._service.change_unloaded(request.model_name, load=False)
        return {}

    def _model(self, name: str, version: str) -> ServedModel:
        return self._service.registry.get(name, version)

    async def infer(self, request: Any, context: RequestContext) -> Any:
        """Run one inference."""
        service = self._service
        model = self._model(request.model_name, request.model_version)
        size = request.ByteSize()
        context.reserve(service.byte_budget, size)
        small = 0 if request.raw_input_contents else size  # raw bytes need no parsing
        parsed = await service.parse(parse_request, small, request, model, service.settings.max_images)
        answer = await run_tensor(service, model, parsed, context)
        return infer_response(model, answer, parsed)


def parse_request(request: Any, model: ServedModel, max_images: int) -> ParsedInferRequest:
    """Check a ModelInferRequest against its model."""
    if len(request.inputs) != 1 or len(request.raw_input_contents) > 1:
        raise ServeError(f"expected one input, got {len(request.inputs)}")
    source = request.inputs[0]
    raw, data, parameters = b"", None, plain(source.parameters)
    if request.raw_input_contents:
        raw = request.raw_input_contents[0]
        parameters["binary_data_size"] = len(raw)
    else:
        data = list(getattr(source.contents, CONTENTS[model.input_type]))
    shape = list(source.shape)
    tensor_input = RequestInput(
        name=source.name, shape=shape[:8], datatype=source.datatype, parameters=parameters, data=data
    )
    outputs = [RequestOutput(name=output.name, parameters=plain(output.parameters)) for output in request.outputs]
    parameters = plain(request.parameters)
    return ParsedInferRequest(
        tensor=read_input(tensor_input, raw, model, max_images),
        output=read_output(outputs, parameters, model),
        id=request.id,
        timeout_us=read_timeout(parameters.get("timeout")),
    )


def plain(parameters: Any) -> dict[str, Any]:
    """Return parameters as a dictionary."""
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in parameters.items()}
    return {name: getattr(parameters[name], field) for name, field in chosen.items() if field is not None}


def infer_response(model: ServedModel, answer: Answer, parsed: ParsedInferRequest) -> Any:
    """Make a ModelInferResponse with raw contents."""
    classes = parsed.output.classes
    shape = [len(answer.outputs), classes or model.output_count]
    output = {"name": model.output_name, "datatype": "BYTES" if classes else "FP32", "shape": shape}
    fields = {"model_name": model.name, "model_version": model.version, "id": parsed.id or "", "outputs": [output]}
    response = message("ModelInferResponse", fields)
    texts = class_strings(model, answer.outputs, classes) if classes else []
    response.raw_output_contents.append(encode_bytes(texts) if classes else answer.outputs.astype("<f4").tobytes())
    return response


class Calls:
    """Runs methods in the context of a request: authorization, errors, log, metrics and traces."""

    def __init__(self, service: Service, inference: InferenceService) -> None:
        self._service = service
        self._inference = inference

    def _begin(self, name: str, call: Any) -> tuple[RequestContext, dict[str, str]]:
        headers = {key: value for key, value in call.invocation_metadata() if isinstance(value, str)}
        path = f"/{SERVICE}/{name}"
        traceparent = headers.get("traceparent", "")
        context = self._service.recorder.begin(headers.get("x-request-id"), traceparent, method="gRPC", path=path)
        context.route, context.caller, context.status = path, str(call.peer()).rpartition(":")[0], 200
        return context, headers

    def _failed(self, context: RequestContext, error: Exception) -> ServeError:
        if not isinstance(error, ServeError):
            fields = {"request_id": context.request_id, "path": context.path}
            error_log.error("request failed", exc_info=error, extra=fields)
            error = InternalError(f"internal error ({type(error).__name__}); request id {context.request_id}")
        context.status, context.reason = error.status, error.reason
        return error

    def unary(self, name: str, scope: str | None, call: Callable[[Any, RequestContext], Awaitable[Any]]) -> Any:
        """Return the handler of a method with one response."""

        async def handle(request: Any, rpc: Any) -> Any:
            context, headers = self._begin(name, rpc)
            try:
                if scope is not None:
                    self._service.authorize(scope, headers, context)
                result = await call(request, context)
                return message(f"{name}Response", result) if isinstance(result, dict) else result
            except Exception as error:
                failure = self._failed(context, error)
                await rpc.abort(grpc.StatusCode[failure.grpc_status], str(failure), tuple(failure.headers()))
            finally:
                self._service.recorder.end(context)

        request_type, response_type = message_class(f"{name}Request"), message_class(f"{name}Response")
        return grpc.unary_unary_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)

    def stream(self) -> Any:
        """Return the handler of ModelStreamInfer: one response, or error, for each request, in their order."""
        response_type = message_class("ModelStreamInferResponse")

        async def handle(requests: AsyncIterator[Any], rpc: Any) -> AsyncIterator[Any]:
            async for request in requests:
                context, headers = self._begin("ModelStreamInfer", rpc)
                try:
                    self._service.authorize("infer", headers, context)
                    yield response_type(infer_response=await self._inference.infer(request, context))
                except Exception as error:
                    failed = message_class("ModelInferResponse")(model_name=request.model_name, id=request.id)
                    yield response_type(error_message=str(self._failed(context, error)), infer_response=failed)
                finally:
                    self._service.recorder.end(context)

        request_type = message_class("ModelInferRequest")
        return grpc.stream_stream_rpc_method_handler(handle, request_type.FromString, response_type.SerializeToString)


@asynccontextmanager
async def serving_grpc(service: Service, version: str) -> AsyncIterator[None]:
    """Serve gRPC on the running event loop."""
    settings = service.settings
    inference = InferenceService(service, version)
    calls = Calls(service, inference)
    handlers = {name: calls.unary(name, scope, method) for name, (scope, method) in inference.methods().items()}
    handlers["ModelInfer"] = calls.unary("ModelInfer", "infer", inference.infer)
    handlers["ModelStreamInfer"] = calls.stream()
    options = [
        ("grpc.max_receive_message_length", settings.max_body_bytes + HEAD_BYTES),
        ("grpc.max_metadata_size", settings.max_header_bytes),
        ("grpc.max_concurrent_streams", settings.queue),
        ("grpc.max_connection_idle_ms", int(settings.idle_seconds * 1_000)),
        ("grpc.so_reuseport", 1),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=settings.max_connections)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    if settings.tls_cert is not None and settings.tls_key is not None:
        authority = settings.tls_client_ca.read_bytes() if settings.tls_client_ca else None
        pair = settings.tls_key.read_bytes(), settings.tls_cert.read_bytes()
        credentials = grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
        server.add_secure_port(f"{address}:{settings.grpc_port}", credentials)
    else:
        server.add_insecure_port(f"{address}:{settings.grpc_port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(settings.drain_seconds)
