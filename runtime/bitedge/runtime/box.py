"""The models in the box: packed files that come with the package, so that a photo can be classified at once.

`models/NAME/VERSION/model.gguf` is the layout that `bitedge serve` reads; each file says in its metadata how it was
trained and how well it does.
"""

from __future__ import annotations

from pathlib import Path

from bitedge.runtime.errors import RuntimeFault

MODELS = Path(__file__).parent / "models"
DEFAULT = "cifar10"


def boxed_models() -> dict[str, Path]:
    """The newest packed file of every model in the box, by name."""
    found = sorted(MODELS.glob("*/*/model.gguf"), key=lambda path: int(path.parent.name))
    return {path.parent.parent.name: path for path in found}


def find_model(name: str | Path) -> Path:
    """The file of a name in the box, or the path itself; a path always has a suffix or a separator."""
    text = str(name)
    if "/" in text or "." in text:
        return Path(name)
    boxed = boxed_models()
    if text not in boxed:
        raise RuntimeFault(f"no model {text!r} in the box: it holds {', '.join(sorted(boxed))}; or give a .gguf file")
    return boxed[text]
