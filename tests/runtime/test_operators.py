"""The core against the numpy reference: every value of random networks over all operators."""

from __future__ import annotations

import numpy as np
import pytest
from tests.runtime import reference
from tests.runtime.random_models import random_images, random_model

from bitedge.runtime import Model, available_kernels

RUNNABLE = [kernels.name for kernels in available_kernels() if kernels.built and kernels.supported]


@pytest.mark.parametrize("seed", range(60))
def test_networks_of_exact_operators_agree_bit_for_bit(seed: int) -> None:
    file = random_model(seed)
    images = random_images(file, seed)
    expected = reference.run(file, images)
    for kernels in RUNNABLE:
        actual = Model(file.build(), kernels=kernels).activations(images)
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value, err_msg=f"seed {seed}, kernels {kernels}, value {name}")


@pytest.mark.parametrize("seed", range(40))
def test_every_operator_agrees_given_the_same_input(seed: int) -> None:
    """With roundings in between only floats are compared, each within what its operator may round."""
    file = random_model(1000 + seed, nodes=1, exact=False)
    images = random_images(file, seed)
    expected = reference.run(file, images)
    for kernels in RUNNABLE:
        actual = Model(file.build(), kernels=kernels).activations(images)
        for name, value in expected.items():
            if value.dtype == np.float32:
                np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=f"{kernels}, {name}")


def test_the_random_models_use_every_operator() -> None:
    used = set()
    for seed in range(60):
        used |= {value[1] for key, value in random_model(seed).keys.items() if key.endswith(".op")}
    for seed in range(40):
        file = random_model(1000 + seed, nodes=1, exact=False)
        used |= {value[1] for key, value in file.keys.items() if key.endswith(".op")}
    assert used == {
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
