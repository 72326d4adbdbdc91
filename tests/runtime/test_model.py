"""The Python binding: what it accepts, what it returns, and what it says when it refuses."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime import reference
from tests.runtime.golden_inputs import committed_models, with_golden
from tests.runtime.packed_file import Array, PackedFile, small_model
from tests.runtime.random_models import random_images, random_model

from bitedge.runtime import Model, RuntimeFault, available_kernels, cpu_features, version
from bitedge.runtime.arrays import unpack_bits
from bitedge.runtime.errors import Status

DATA = Path(__file__).resolve().parents[2] / "runtime" / "tests" / "data"


@pytest.fixture(name="model")
def small() -> Model:
    return Model(small_model().build())


@pytest.fixture(name="images")
def noise() -> Array:
    return random_images(small_model(), 3, 5)


def test_a_model_describes_itself(model: Model) -> None:
    assert (model.name, model.input_kind, model.input_shape, model.output_count) == ("by hand", "uint8", (6, 6, 3), 5)
    assert model.labels == ("cat", "dog", "Zürich", "a\nb", "")
    assert model.preprocessing is not None
    assert model.preprocessing["size"] == [6, 6]
    assert model.training is None
    assert model.file_bytes == len(small_model().build())
    assert [value.kind for value in model.values] == ["uint8", "bits", "float32", "float32", "float32"]
    assert repr(model).startswith("Model('by hand', uint8 [6, 6, 3] -> 5, kernels ")


def test_nodes_are_described(model: Model) -> None:
    stem, conv, mean, dense = model.nodes
    assert [node.op for node in model.nodes] == ["image_conv2d", "binary_conv2d", "avg_pool2d", "conv2d"]
    assert (stem.index, stem.name, stem.inputs, stem.shape, stem.macs) == (
        0,
        "stem",
        ("image",),
        (6, 6, 4),
        36 * 4 * 27,
    )
    assert (conv.name, conv.outputs, conv.shape, conv.bytes) == ("conv", ("conv",), (3, 3, 8), 8 * 9 * 8 + 64)
    assert (mean.macs, mean.bytes) == (0, 0)
    assert dense.attributes["epilogue"] == "float"
    assert conv.attributes["epilogue"] == "fma+float"
    assert conv.attributes["stride"] == [2, 2]
    assert all(node.kernel for node in model.nodes)


def test_metadata_holds_every_key_but_nodes_and_labels() -> None:
    file = small_model()
    extra: dict[str, tuple[str, Any]] = {
        "author": ("string", 'Ada \\ "Lovelace"\t'),
        "license.years": ("u16[]", [2025, 2026]),
        "ratio": ("f32", 0.1),
        "wide": ("f64", 0.1),
        "nothing": ("f32", float("nan")),
        "big": ("u64", 2**64 - 1),
        "small": ("i64", -(2**63)),
        "flag": ("bool", 1),
        "none": ("u8[]", []),
        "bitedge.training": ("string", '{"accuracy": 0.97, "recipe": "a = 1\\n"}'),
        "bitedge.future": ("i8", -3),
    }
    file.keys.update(extra)
    metadata = Model(file.build()).metadata
    assert metadata["author"] == 'Ada \\ "Lovelace"\t'
    assert metadata["license.years"] == [2025, 2026]
    assert np.float32(metadata["ratio"]) == np.float32(0.1)
    assert metadata["wide"] == 0.1
    assert metadata["nothing"] is None
    assert (metadata["big"], metadata["small"], metadata["flag"]) == (2**64 - 1, -(2**63), True)
    assert metadata["none"] == []
    assert metadata["bitedge.training"] == {"accuracy": 0.97, "recipe": "a = 1\n"}
    assert metadata["bitedge.future"] == -3
    assert metadata["general.name"] == "by hand"
    assert not [key for key in metadata if key.startswith("bitedge.node.") or key == "bitedge.labels"]


def test_run_answers_a_batch(model: Model, images: Array) -> None:
    answers = model.run(images)
    assert answers.shape == (5, 5)
    assert answers.dtype == np.float32
    expected = reference.run(small_model(), images)["logits"].reshape(5, 5)
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-5)
    for index, image in enumerate(images):
        np.testing.assert_array_equal(model.run(image[None])[0], answers[index])


def test_an_empty_batch_gives_an_empty_answer(model: Model, images: Array) -> None:
    assert model.run(images[:0]).shape == (0, 5)
    with pytest.raises(RuntimeFault, match="at least one image"):
        model.activations(images[:0])


def test_strided_images_are_copied(model: Model, images: Array) -> None:
    planar = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert not planar.flags.c_contiguous
    np.testing.assert_array_equal(model.run(planar), model.run(images))
    np.testing.assert_array_equal(model.run(images[::-2]), model.run(images)[::-2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1]], "got list; convert with numpy.asarray"),
        (np.zeros((1, 6, 6, 3), np.float32), "got float32; convert with .astype"),
        (np.zeros((1, 6, 6, 3), np.int8), "got int8"),
        (np.zeros((6, 6, 3), np.uint8), "a single image needs a batch axis"),
        (np.zeros((1, 3, 6, 6), np.uint8), r"got \[1, 3, 6, 6\]"),
        (np.zeros((1, 6, 6, 4), np.uint8), r"expected images as a uint8 array of shape \[N, 6, 6, 3\]"),
        (np.uint8(3), "got uint8"),
    ],
)
def test_wrong_arrays_are_refused(model: Model, given: Any, message: str) -> None:
    for call in (model.run, model.activations, model.profile):
        with pytest.raises(RuntimeFault, match=message):
            call(given)


def test_float_models_take_native_floats_only() -> None:
    file = random_model(12, nodes=8)
    images = random_images(file, 1)
    model = Model(file.build())
    assert model.input_kind == "float32"
    assert model.run(images).shape == (3, 4)
    for kind in (np.float64, np.float16, ">f4", np.uint8):
        with pytest.raises(RuntimeFault, match="expected images as a float32 array"):
            model.run(images.astype(kind))


def test_activations_return_every_value(model: Model) -> None:
    images = random_images(small_model(), 8, 37)  # more than one chunk
    values = model.activations(images)
    assert list(values) == ["image", "stem", "conv", "mean", "logits"]
    assert values["stem"].dtype == np.int8
    assert set(np.unique(values["stem"])) == {-1, 1}
    np.testing.assert_array_equal(values["image"], images)
    np.testing.assert_array_equal(values["logits"].reshape(37, 5), model.run(images))
    for name, expected in reference.run(small_model(), images).items():
        np.testing.assert_allclose(values[name], expected, rtol=1e-5, atol=1e-5)


def test_bits_unpack_least_significant_first() -> None:
    words = np.array([[0b101, 1 << 63], [0, 1]], np.uint64)
    signs = unpack_bits(words, 128)
    assert np.flatnonzero(signs[0] == -1).tolist() == [0, 2, 127]
    assert np.flatnonzero(signs[1] == -1).tolist() == [64]
    assert unpack_bits(words, 65).shape == (2, 65)


@pytest.mark.parametrize("threads", [2, 3])
def test_answers_do_not_depend_on_threads(threads: int) -> None:
    file = random_model(6, nodes=8)
    images = random_images(file, 2, 9)
    data = file.build()
    np.testing.assert_array_equal(Model(data, threads=threads).run(images), Model(data).run(images))


def test_contexts_run_side_by_side_and_outlive_the_model(images: Array) -> None:
    model = Model(small_model().build())
    expected = model.run(images)
    contexts = [model.context(), model.context(threads=2), model.context()]
    del model
    gc.collect()
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(50):
            if not np.array_equal(contexts[index].run(images), expected):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_model_called_from_many_threads_is_safe(model: Model, images: Array) -> None:
    expected = model.run(images)
    answers: list[Array] = []
    threads = [threading.Thread(target=lambda: answers.extend(model.run(images) for _ in range(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 120
    assert all(np.array_equal(answer, expected) for answer in answers)


@pytest.mark.parametrize("threads", [0, -1, 257, 1.5, True, "2"])
def test_wrong_thread_counts_are_refused(threads: Any) -> None:
    with pytest.raises(RuntimeFault, match="expected a whole number from 1 to 256"):
        Model(small_model().build(), threads=threads)


def test_profile_has_a_time_for_every_node(model: Model, images: Array) -> None:
    seconds = model.profile(images, runs=3)
    assert len(seconds) == len(model.nodes)
    assert all(second >= 0 for second in seconds)
    assert sum(seconds) > 0
    with pytest.raises(RuntimeFault, match="one run"):
        model.profile(images, runs=0)


def test_only_a_keeping_context_gives_activations(model: Model, images: Array) -> None:
    with pytest.raises(RuntimeFault, match="keep_values"):
        model.context().activations(images)
    assert "stem" in model.context(keep_values=True).activations(images)


def test_kernels_can_be_forced_by_name(monkeypatch: pytest.MonkeyPatch, images: Array) -> None:
    data = small_model().build()
    assert Model(data, kernels="scalar").kernels == "scalar"
    assert {node.kernel.split()[0] for node in Model(data, kernels="scalar").nodes} == {"reference"}
    with pytest.raises(RuntimeFault, match=r"mmx.*scalar") as caught:
        Model(data, kernels="mmx")
    assert caught.value.status is Status.UNAVAILABLE
    monkeypatch.setenv("BITEDGE_KERNELS", "scalar")
    assert Model(data).kernels == "scalar"
    assert [kernels.name for kernels in available_kernels() if kernels.chosen] == ["scalar"]
    monkeypatch.setenv("BITEDGE_KERNELS", "mmx")
    with pytest.raises(RuntimeFault, match="mmx"):
        Model(data)
    assert not [kernels for kernels in available_kernels() if kernels.chosen]


def test_what_the_machine_offers() -> None:
    rows = available_kernels()
    assert len({row.name for row in rows}) == len(rows)
    scalar = next(row for row in rows if row.name == "scalar")
    assert scalar.built
    assert scalar.supported
    assert all(row.built and row.supported for row in rows if row.chosen)
    assert all(feature == feature.lower() for feature in cpu_features())
    assert version().count(".") == 2


def test_golden_vectors_are_checked() -> None:
    for kernels in (row.name for row in available_kernels() if row.built and row.supported):
        for data in committed_models().values():
            Model(data, kernels=kernels).check()


@pytest.mark.parametrize("wrong", [0.02, -0.02, 1e30])
def test_a_wrong_golden_vector_is_named(wrong: float) -> None:
    file = with_golden(small_model())
    file.tensors["golden.output"][1, 2] += wrong
    with pytest.raises(RuntimeFault, match="golden vector 1: output 2 is") as caught:
        Model(file.build()).check()
    assert caught.value.status is Status.GOLDEN


def test_the_tolerance_of_golden_vectors_follows_the_largest_answer() -> None:
    file = with_golden(small_model())
    largest = np.abs(file.tensors["golden.output"][1]).max()
    file.tensors["golden.output"][1, 2] += np.float32(0.9e-3 * max(1, largest))
    Model(file.build()).check()


def test_a_model_without_golden_vectors_cannot_be_checked(model: Model) -> None:
    with pytest.raises(RuntimeFault, match="has no golden vectors"):
        model.check()


@pytest.mark.parametrize("name", ["small.gguf", "image.gguf", "float.gguf"])
def test_the_committed_models_are_what_the_format_says(name: str) -> None:
    """Golden bytes: were the writer in this folder, or the format, to change, these would differ."""
    assert (DATA / name).read_bytes() == committed_models()[name]


def test_an_output_that_is_a_map_is_flattened() -> None:
    file = PackedFile.start((2, 2, 3), kind="float32")
    file.node("softmax", [0], ["out"], {})
    images = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3)
    model = Model(file.finish(1).build())
    assert model.output_count == 12
    np.testing.assert_allclose(model.run(images).reshape(2, 2, 2, 3).sum(axis=-1), 1, rtol=1e-6)
