"""The verbs of the command line: one row each, in the order of the data's way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """A verb, the module that carries it out, and the extra that it needs."""

    name: str
    help: str
    extra: str | None

    @property
    def module(self) -> str:
        """The module with `add_arguments(parser)` and `run(args) -> exit code`."""
        name = "imports" if self.name == "import" else self.name  # `import` cannot be a module's name
        return f"bitedge.cli.{name}"


VERBS = (
    Verb("models", "list the networks there are, with what is published about them", "train"),
    Verb("train", "train a network from a recipe", "train"),
    Verb("eval", "measure the accuracy of a training run", "train"),
    Verb("export", "turn a training run into packed artifacts", "train"),
    Verb("import", "turn an ONNX, QONNX or Larq TFLite file into packed artifacts", "train"),
    Verb("verify", "check that every artifact gives the same answer", "train"),
    Verb("inspect", "show what an artifact holds", None),
    Verb("bench", "measure latency on this device", None),
    Verb("predict", "classify images with a packed model", None),
    Verb("serve", "classify images over HTTP", "serve"),
    Verb("pipeline", "train, export, verify and bench in one go", "train"),
    Verb("doctor", "show what this machine and installation can do", None),
)

# Which extra brings a package, by the name that is imported.
EXTRA_OF_PACKAGE = {
    "PIL": "image",
    "fastapi": "serve",
    "granian": "serve",
    "orjson": "serve",
    "pydantic_settings": "serve",
    "grpc": "grpc",
    "opentelemetry": "otel",
    "httpx2": "client",
    "multipart": "serve",
    "python_multipart": "serve",
    "prometheus_client": "serve",
    "torch": "train",
    "safetensors": "train",
    "sklearn": "train",
    "matplotlib": "train",
    "optuna": "train",
    "tqdm": "train",
    "openvino": "bench",
    "gguf": "train",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "larq_compute_engine": "tflite",
    "tensorflow": "tflite",
    "flatbuffers": "tflite",
}
