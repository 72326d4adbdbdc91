"""Write a network of Larq Zoo, with random weights, as a TFLite file: PYTHON larq_zoo_file.py NAME SIZE FILE.

Runs in an environment of its own: pip install larq larq-zoo 'tensorflow==2.15.*' larq-compute-engine
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(name: str, size: int, path: Path) -> None:
    """Build the network, give its BatchNorms statistics, and convert it."""
    keras: Any = importlib.import_module("tensorflow").keras
    zoo: Any = importlib.import_module("larq_zoo")
    converter: Any = importlib.import_module("larq_compute_engine")
    keras.utils.set_random_seed(0)
    home = zoo.sota if name.startswith("QuickNet") else zoo.literature
    model = getattr(home, name)(input_shape=(size, size, 3), weights=None, num_classes=10)
    rng = np.random.default_rng(1)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.set_weights([_drawn(rng, weight.name, weight.shape) for weight in layer.weights])
    path.write_bytes(converter.convert_keras_model(model))


def _drawn(rng: np.random.Generator, name: str, shape: Any) -> Any:
    if "variance" in name:
        return rng.uniform(0.5, 2, shape)
    return rng.normal(size=shape) * (0.3 if "mean" in name else 0.5) + (1 if "gamma" in name else 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
