"""Recipes: one TOML file says everything that decides a training run, and is kept with its result.

`load_recipe("digits")` reads a shipped recipe, `load_recipe("mine.toml")` a file; overrides are dotted
`key=value` pairs as given to `bitedge train --set`. The schema is the frozen dataclasses below; a key that
is not in them, a value of the wrong type or out of range is refused before anything runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bitedge.train.errors import TrainError
from bitedge.train.recipes.records import nearest, plain, read_record, write_toml

RECIPES = Path(__file__).parent

Rule = Literal["bop2nd", "bop", "cema", "latent", "real"]
Mode = Literal["biased", "unbiased", "adam"]

NEEDED_FIELDS: dict[str, tuple[str, ...]] = {
    "bop2nd": ("mode", "gamma", "sigma", "tau"),
    "bop": ("gamma", "tau"),
    "cema": ("gamma", "sigma", "tau"),
    "latent": (),
    "real": (),
    "exponential": ("factor", "every"),
}
OPTIONAL_FIELDS: dict[str, tuple[str, ...]] = {
    "bop2nd": ("threshold", "warm_start"),
    "bop": ("warm_start",),
    "cema": ("warm_start",),
    "latent": (),
    "real": (),
    "polynomial": ("power",),
    "cosine": ("log",),
    "exponential": ("staircase",),
}
"""Fields of a rule or of a kind of schedule, next to those that all of them have."""


@dataclass(frozen=True)
class ScheduleRecipe:
    """A hyper-parameter that changes at every step; plain numbers are constants.

    `linear`, `polynomial`, `geometric` and `cosine` go from `start` to `end` over the whole run;
    `exponential` multiplies `start` by `factor` every `every` epochs, at once (`staircase`) or smoothly.
    """

    kind: Literal["linear", "polynomial", "geometric", "cosine", "exponential"]
    start: float
    end: float | None = None
    power: float | None = None
    factor: float | None = None
    every: float | None = None
    staircase: bool | None = None
    log: bool | None = None

    def check(self, key: str) -> None:
        """Refuse a schedule whose fields do not fit its kind."""
        needed = NEEDED_FIELDS.get(self.kind, ("end",))
        allowed = {*needed, *OPTIONAL_FIELDS.get(self.kind, ())}
        for name in ("end", "power", "factor", "every", "staircase", "log"):
            given = getattr(self, name) is not None
            if name in needed and not given:
                raise TrainError(f"{key}.{name} is missing: a {self.kind} schedule needs {' and '.join(needed)}")
            if given and name not in allowed:
                raise TrainError(f"{key}.{name} has no meaning for a {self.kind} schedule: remove it")
        if self.start < 0 or (self.end is not None and self.end < 0):
            raise TrainError(f"{key}: expected values of 0 or more, got start {self.start}, end {self.end}")
        if self.kind == "geometric" and (self.start == 0 or self.end == 0):
            raise TrainError(f"{key}: a geometric schedule cannot start or end at 0, use linear")


@dataclass(frozen=True)
class DataRecipe:
    """Which images, how many are held out, how they are augmented and brought to numbers."""

    name: Literal["digits", "cifar10", "folder"]
    augment: bool = True
    shift: int | None = None  # pixels of random shift, where images live in memory; the set's own unless given
    normalization: Literal["dyadic", "paper", "imagenet"] = "dyadic"
    validation: int = 0  # images held out of the training split, the same ones for every seed
    size: int | None = None  # side of the image fed to the network (folders)
    resize: int | None = None  # shorter side before the centre crop (folders)
    limit: int | None = None  # only the first so many training images
    workers: int = 0  # decoding processes (folders)


@dataclass(frozen=True)
class NetworkRecipe:
    """A network of `bitedge.train.NETWORKS` and its keyword arguments; the number of classes comes from the data."""

    name: Literal["binarynet", "xnornet", "birealnet18"]
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SwitchRecipe:
    """Go on with Bop from the start of this epoch: the paper's own suggestion for the last part of a run."""

    epoch: int
    gamma: float | ScheduleRecipe
    tau: float | ScheduleRecipe


@dataclass(frozen=True)
class OptimizerRecipe:
    """The rule of the binary weights, and Adam for the rest.

    `latent` is the baseline: real weights behind a sign, trained by Adam like the rest and clipped to [-clip, clip].
    `real` is the float twin of a network, without any sign: a teacher, not something to deploy.
    """

    rule: Rule
    lr: float | ScheduleRecipe
    mode: Mode | None = None
    gamma: float | ScheduleRecipe | None = None
    sigma: float | ScheduleRecipe | None = None
    tau: float | ScheduleRecipe | None = None
    threshold: Literal["absolute", "noise"] | None = None
    warm_start: float | None = None
    eps: float = 1e-10
    adam_eps: float = 1e-7
    weight_decay: float = 0.0  # of the real weights with two or more axes: convolutions and dense layers
    clip: float = 1.0
    switch: SwitchRecipe | None = None

    def check(self) -> None:
        """Refuse hyper-parameters which the rule lacks or does not know."""
        needed = NEEDED_FIELDS[self.rule]
        allowed = (*needed, *OPTIONAL_FIELDS[self.rule])
        for name in ("mode", "gamma", "sigma", "tau", "threshold", "warm_start"):
            given = getattr(self, name) is not None
            if name in needed and not given:
                raise TrainError(f"optimizer.{name} is missing: rule {self.rule!r} needs {', '.join(needed)}")
            if given and name not in allowed:
                raise TrainError(f"optimizer.{name} has no meaning for rule {self.rule!r}: remove it")
        if self.switch is not None and self.rule != "bop2nd":
            raise TrainError(f"optimizer.switch goes from 'bop2nd' to Bop, not from {self.rule!r}: remove it")
        for name, value in self.scheduled().items():
            if isinstance(value, ScheduleRecipe):
                value.check(f"optimizer.{name}")
            elif value < 0:
                raise TrainError(f"optimizer.{name} = {value}: expected 0 or more")

    def scheduled(self) -> dict[str, float | ScheduleRecipe]:
        """Return the hyper-parameters that may follow a schedule, by name."""
        values = {"gamma": self.gamma, "sigma": self.sigma, "tau": self.tau, "lr": self.lr}
        if self.switch is not None:
            values |= {"switch.gamma": self.switch.gamma, "switch.tau": self.switch.tau}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class LossRecipe:
    """What is minimized: cross-entropy with the labels, and with the answers of a teacher if one is named."""

    label_smoothing: float = 0.0
    teacher: str | None = None  # a run folder
    teacher_share: float = 0.5
    temperature: float = 2.0

    def check(self) -> None:
        """Refuse shares outside of 0 to 1 and a temperature that is none."""
        for key, value in (("label_smoothing", self.label_smoothing), ("teacher_share", self.teacher_share)):
            if not 0 <= value <= 1:
                raise TrainError(f"loss.{key} = {value}: expected 0 to 1")
        if not self.temperature > 0:
            raise TrainError(f"loss.temperature = {self.temperature}: expected more than 0")


@dataclass(frozen=True)
class Execution:
    """How to run it: none of this is part of the method, all of it is recorded."""

    device: str = "auto"
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    compile: bool = False
    channels_last: bool = True
    sync_batchnorm: bool = False
    deterministic: bool = True
    threads: int = 0  # 0: as torch chooses
    checkpoint_steps: int = 0  # next to the checkpoint of every epoch, one every so many steps
    telemetry_steps: int = 20  # observe one optimizer step of so many; 0: none
    hash_steps: int = 100  # several processes: compare the binary weights every so many steps


@dataclass(frozen=True)
class Recipe:
    """One experiment, complete."""

    name: str
    title: str
    expected: str
    cost: str
    epochs: int
    batch_size: int
    data: DataRecipe
    network: NetworkRecipe
    optimizer: OptimizerRecipe
    loss: LossRecipe = field(default_factory=LossRecipe)
    renorm: int = 0  # batches over which BatchNorm's statistics are taken anew after each epoch; 0: running averages
    seed: int = 0
    execution: Execution = field(default_factory=Execution)

    def check(self) -> None:
        """Refuse what no run could mean."""
        for key, value, least in (
            ("epochs", self.epochs, 1),
            ("batch_size", self.batch_size, 2),
            ("seed", self.seed, 0),
            ("renorm", self.renorm, 0),
            ("data.validation", self.data.validation, 0),
            ("data.shift", self.data.shift, 0),
            ("data.limit", self.data.limit, 2),
            ("data.size", self.data.size, 8),
            ("data.resize", self.data.resize, 8),
            ("data.workers", self.data.workers, 0),
            ("execution.threads", self.execution.threads, 0),
            ("execution.checkpoint_steps", self.execution.checkpoint_steps, 0),
            ("execution.telemetry_steps", self.execution.telemetry_steps, 0),
            ("execution.hash_steps", self.execution.hash_steps, 1),
        ):
            if value is not None and value < least:
                raise TrainError(f"{key} = {value}: expected {least} or more")
        self.optimizer.check()
        self.loss.check()
        switch = self.optimizer.switch
        if switch is not None and not 0 < switch.epoch < self.epochs:
            raise TrainError(f"optimizer.switch.epoch = {switch.epoch}: expected 1 to {self.epochs - 1}")

    def to_toml(self) -> str:
        """Write the recipe back, every default spelled out."""
        return write_toml(plain(self))


def list_recipes() -> list[str]:
    """Names of the shipped recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(source: str | Path | Recipe, overrides: Iterable[str] = ()) -> Recipe:
    """Read a shipped recipe by name or a TOML file by path, apply `key=value` overrides, and check it."""
    table = plain(source) if isinstance(source, Recipe) else read_table(source)
    for override in overrides:
        apply_override(table, override)
    recipe = read_record(Recipe, table)
    recipe.check()
    return recipe


def read_table(source: str | Path, folder: Path = RECIPES, what: str = "recipe") -> dict[str, Any]:
    """Read the TOML table of a shipped name or of a file."""
    path = Path(source)
    if path.suffix != ".toml":
        known = [found.stem for found in folder.glob("*.toml")]
        if str(source) not in known:
            raise TrainError(f"unknown {what} {str(source)!r}: {nearest(str(source), known)} (or give a .toml file)")
        path = folder / f"{source}.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainError(f"cannot read {what} {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainError(f"{path} is not valid TOML: {error}") from error


def apply_override(table: dict[str, Any], override: str) -> None:
    """Set one dotted key; the value is read as TOML, and as a plain string where that fails."""
    key, equals, text = override.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise TrainError(f"--set {override!r}: expected key=value, as in --set epochs=3")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for part in path[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise TrainError(f"--set {override!r}: {part!r} is the single value {inner!r}, not a table")
        table = inner
    table[path[-1]] = value
