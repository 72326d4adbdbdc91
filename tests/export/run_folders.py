"""A run folder that is made in seconds: real training, hardly any of it."""

from __future__ import annotations

from pathlib import Path

from bitedge.train import fit

RECIPE = """
name = "tiny"
title = "A BiRealNet18 that hardly trained"
expected = "nothing"
cost = "seconds"
epochs = 1
batch_size = 20

[data]
name = "digits"
validation = 20
limit = 80

[network]
name = "birealnet18"

[network.arguments]
width = 4
stem_stride = 1
stem_pool = false

[optimizer]
rule = "bop2nd"
mode = "biased"
gamma = 1e-2
sigma = 1e-3
tau = 1e-3
lr = 1e-2

[execution]
threads = 1
"""


def make_run(folder: Path) -> Path:
    """Train by the recipe and give the run folder."""
    source = folder / "source.toml"
    source.write_text(RECIPE)
    return fit(source, out=folder / "run").folder
