"""Write the fuzzer's first inputs: `python -m tests.runtime.fuzz_seeds FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tests.runtime.hostile_containers import CONTAINERS
from tests.runtime.hostile_graphs import GRAPHS
from tests.runtime.hostile_steps import VERSION_2
from tests.runtime.packed_file import small_model
from tests.runtime.random_models import random_model

LARGEST = 1 << 14
"""Larger seeds slow the fuzzer down and teach it nothing."""


def main(folder: Path) -> None:
    """Good models over all operators, and the hostile ones."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {"small": small_model(golden=np.zeros((2, 5))).build()}
    seeds |= {f"exact_{seed}": random_model(seed, nodes=2).build() for seed in range(24)}
    seeds |= {f"single_{seed}": random_model(1000 + seed, nodes=1, exact=False).build() for seed in range(24)}
    seeds |= {f"steps_{seed}": random_model(seed, nodes=2, version=2).build() for seed in range(24)}
    seeds |= {hostile.name: hostile.make() for hostile in CONTAINERS + GRAPHS + VERSION_2}
    for name, data in seeds.items():
        if len(data) <= LARGEST:
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
