"""The same network behind MLServer and ONNX Runtime: base64 in a BYTES tensor of the Open Inference Protocol."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import onnxruntime
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput  # type: ignore[import-not-found]
from PIL import Image


class Classifier(MLModel):  # type: ignore[misc]
    """Decode, run, answer."""

    async def load(self) -> bool:
        """Load the model that `model-settings.json` names."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = self.settings.parameters.uri
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.preprocessing = json.loads(metadata["bitedge.preprocessing"])
        self.source = self.session.get_inputs()[0]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Classify one image."""
        data: Any = payload.inputs[0].data
        image = Image.open(io.BytesIO(base64.b64decode(data[0]))).convert("RGB")
        height, width = self.preprocessing["size"]
        tensor: Any = np.asarray(image.resize((width, height)), np.uint8)[None]
        if self.source.type != "tensor(uint8)":
            scale, offset = (np.asarray(self.preprocessing[name], np.float32) for name in ("scale", "offset"))
            tensor = tensor.astype(np.float32) * scale + offset
        if self.source.shape[1] in (1, 3) and self.source.shape[3] not in (1, 3):
            tensor = np.ascontiguousarray(tensor.transpose(0, 3, 1, 2))
        (logits,) = self.session.run(None, {self.source.name: tensor})
        output = ResponseOutput(name="logits", shape=list(logits.shape), datatype="FP32", data=logits.ravel().tolist())
        return InferenceResponse(model_name=self.name, outputs=[output])
