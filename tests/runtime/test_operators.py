"""The core against the numpy reference: every value of random networks over all operators."""

from __future__ import annotations

import numpy as np
import pytest
from tests.runtime import reference
from tests.runtime.packed_file import Array, PackedFile, steps
from tests.runtime.random_models import STEPS, random_images, random_model

from bitedge.runtime import Model, available_kernels

RUNNABLE = [kernels.name for kernels in available_kernels() if kernels.built and kernels.supported]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_networks_of_exact_operators_agree_bit_for_bit(seed: int, version: int) -> None:
    file = random_model(seed, version=version)
    images = random_images(file, seed)
    expected = reference.run(file, images)
    for kernels in RUNNABLE:
        actual = Model(file.build(), kernels=kernels).activations(images)
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value, err_msg=f"seed {seed}, kernels {kernels}, value {name}")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(100))
def test_every_operator_agrees_given_the_same_input(seed: int, version: int) -> None:
    """With roundings in between only floats are compared, each within what its operator may round."""
    file = random_model(1000 + seed, nodes=1, exact=False, version=version)
    images = random_images(file, seed)
    expected = reference.run(file, images)
    for kernels in RUNNABLE:
        actual = Model(file.build(), kernels=kernels).activations(images)
        for name, value in list(expected.items())[:-1]:  # the last one reads signs
            if value.dtype == np.float32:
                np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=f"{kernels}, {name}")


def test_the_random_models_use_every_operator() -> None:
    used: dict[int, set[str]] = {1: set(), 2: set()}
    for version, names in used.items():
        files = [random_model(seed, version=version) for seed in range(60)]
        files += [random_model(1000 + seed, nodes=1, exact=False, version=version) for seed in range(100)]
        for file in files:
            for key, value in file.keys.items():
                names.update([value[1]] if key.endswith(".op") else value[1] if key.endswith(".steps") else [])
    assert used[1] == {
        "normalize",
        "image_conv2d",
        "binary_conv2d",
        "conv2d",
        "elementwise",
        "max_pool2d",
        "avg_pool2d",
        "layer_norm",
        "softmax",
    }
    new = {"concat", "gather_channels", "group_norm", "adaptive_avg_pool2d"}
    assert used[2] == used[1] | new | set(STEPS)


def distances(actual: Array, expected: Array, floor: float) -> Array:
    """In units in the last place of the larger of the expected number and a floor."""
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(expected), floor))) - 23)
    return np.asarray(np.abs(actual.astype(np.float64) - expected) / unit)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "silu", "gelu", "gelu_tanh"])
def test_functions_are_within_four_units_and_alike_on_every_set(name: str) -> None:
    """Between -30 and 30, around 0, and at the ends; on every set the same bits."""
    near, far = np.linspace(-1e-3, 1e-3, 2**12), np.linspace(-30, 30, 2**15)
    numbers = np.concatenate([near, far, [0.0, -0.0, 80.0, -80.0, 1e30, -1e30, 1e-30, -1e-30]])
    x = np.resize(numbers.astype(np.float32), (1, 293, 126, 1))
    file = PackedFile.start(x.shape[1:], kind="float32", version=2)
    file.node("elementwise", [0], ["y"], {}, **steps(name))
    expected = reference.step(x.astype(np.float64), name, lambda _: None, None, rounded=False)
    answers = [Model(file.finish(1).build(), kernels=kernels).activations(x)["y"] for kernels in RUNNABLE]
    floor = 2.0**-20 if name.startswith("gelu") else 2.0**-118
    assert distances(answers[0], expected, floor).max() <= 4
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer.view(np.uint32), answers[0].view(np.uint32))
