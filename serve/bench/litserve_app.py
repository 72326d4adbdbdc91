"""The same network behind LitServe and ONNX Runtime, as LitServe's own examples serve images: base64 in JSON."""

from __future__ import annotations

import base64
import io
import json
import sys
from typing import Any

import litserve  # type: ignore[import-not-found]
import numpy as np
import onnxruntime
from PIL import Image


class Classifier(litserve.LitAPI):  # type: ignore[misc]
    """Decode, run, answer."""

    def setup(self, device: str) -> None:  # noqa: ARG002
        """Load the model in the worker process."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.preprocessing = json.loads(metadata["bitedge.preprocessing"])
        self.source = self.session.get_inputs()[0]

    def decode_request(self, request: dict[str, str]) -> np.ndarray[Any, Any]:
        """One image, prepared as the network was trained."""
        image = Image.open(io.BytesIO(base64.b64decode(request["image"]))).convert("RGB").resize((32, 32))
        pixels = np.asarray(image)
        if self.source.type != "tensor(uint8)":
            scale, offset = (np.float32(self.preprocessing[key]) for key in ("scale", "offset"))
            pixels = pixels.astype(np.float32) * scale + offset
        return pixels.transpose(2, 0, 1) if self.source.shape[1] == 3 else pixels

    def batch(self, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Several images."""
        return np.ascontiguousarray(np.stack(inputs))

    def predict(self, batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The network."""
        return np.asarray(self.session.run(None, {self.source.name: batch})[0])

    def unbatch(self, output: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """One answer for each image."""
        return list(output)

    def encode_response(self, output: np.ndarray[Any, Any]) -> dict[str, Any]:
        """The best class."""
        return {"class": int(output.argmax()), "score": float(output.max())}


if __name__ == "__main__":
    server = litserve.LitServer(Classifier(max_batch_size=32, batch_timeout=0.0), accelerator="cpu")
    server.run(port=int(sys.argv[2]), generate_client_file=False, log_level="error")
