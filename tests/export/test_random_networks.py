"""Torch, the captured graph, the lowered graph and the core agree on random networks.

60 networks by default, always the same ones; BITEDGE_EXAMPLES=500 draws more, and others.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from tests.export.forced import core_differences, differences
from tests.export.random_networks import Case, cases

from bitedge.export.capture.capture import trace
from bitedge.export.formats.bundle import Bundle
from bitedge.export.formats.gguf import writer as gguf_writer
from bitedge.export.ir import reference
from bitedge.export.ir.exactness import exact_values
from bitedge.export.lowering.lower import lower
from bitedge.export.verify.golden import reference_golden
from bitedge.runtime import Model

EXAMPLES = int(os.environ.get("BITEDGE_EXAMPLES", "60"))


@settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 60,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_torch_graphs_and_core_agree(case: Case) -> None:
    captured = trace(case.module, case.shape, preprocessing=case.preprocessing)
    lowered = lower(captured.graph)
    known = captured.tensors(case.images)
    assert differences(captured.graph, known, case.images) == []
    assert differences(lowered, known, case.images) == []

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        gguf_writer.write(Bundle(captured.graph, lowered, reference_golden(lowered)), path)
        model = Model(path)
    values = model.activations(case.images)
    assert core_differences(lowered, values) == []
    for name in exact_values(lowered) & set(known):
        np.testing.assert_array_equal(values[name].reshape(known[name].shape), known[name], err_msg=name)
    if lowered.output in exact_values(lowered):
        np.testing.assert_array_equal(model.run(case.images), reference.run(lowered, case.images))
        model.check()
