"""Put a finished run into the box: `python -m bitedge.cli.box RUN_DIR NAME`, for the maintainers of this package.

The packed model goes to bitedge.runtime.models, where `predict` and `serve` find it; recipe, log and weights go to
bitedge.train.pretrained, so that everything about the model can be measured again: `bitedge eval NAME --everywhere`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path


def put(run_folder: Path, name: str, *, version: int = 1) -> None:
    """Export a run and copy what the box keeps of it."""
    from bitedge.export import export_run
    from bitedge.runtime.box import MODELS
    from bitedge.train.engine.checkpoint import save_module, write_text
    from bitedge.train.engine.run import BUNDLED, load_run

    run = load_run(run_folder)
    kept = BUNDLED / name
    kept.mkdir(parents=True, exist_ok=True)
    for file in ("recipe.toml", "metrics.csv", "environment.json"):
        shutil.copyfile(run_folder / file, kept / file)
    about = json.loads((run_folder / "model.json").read_text(encoding="utf-8"))
    about["data"]["root"] = None  # a folder of the machine that trained it
    write_text(kept / "model.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    save_module(kept / "best.safetensors", run.module, pack=True)
    folder = MODELS / name / str(version)
    report = export_run(kept, folder, formats=("gguf",))
    for extra in ("report.json", "report.md"):
        (folder / extra).unlink(missing_ok=True)
    print(f"{folder / 'model.gguf'}: {report.sizes['model.gguf']:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    args = parser.parse_args()
    put(args.run, args.name)
