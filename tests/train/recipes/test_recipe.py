"""Recipes: what is shipped loads and fits its network; what is wrong is refused with a helpful line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from bitedge.train.engine.build import build_network, network_arguments
from bitedge.train.engine.optimization import build_optimizer, build_schedules
from bitedge.train.errors import TrainError
from bitedge.train.optim import RULES, Schedule
from bitedge.train.recipes.optimizer import OPTIMIZERS
from bitedge.train.recipes.recipe import RECIPES, Recipe, list_recipes, load_recipe
from bitedge.train.recipes.schedule import build_schedule, ends
from bitedge.train.recipes.validation import plain

CLASSES = {"digits": 10, "cifar10": 10, "folder": 20}


@pytest.mark.parametrize("name", list_recipes())
def test_shipped_recipe_is_complete(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.title
    assert recipe.expected
    assert recipe.cost


@pytest.mark.parametrize("name", list_recipes())
def test_shipped_recipe_builds_its_network_and_schedules(name: str) -> None:
    recipe = load_recipe(name)
    arguments = network_arguments(recipe, CLASSES[recipe.data.name], recipe.data.size or 32)
    with torch.device("meta"):
        module = build_network(recipe.network.name, arguments)
    optimizer = build_optimizer(recipe.optimizer, module)
    schedules = build_schedules(recipe, optimizer, 3)
    rules = {group["rule"] for group in optimizer.param_groups}
    # The weights of a float twin are trained as latent ones are; only the signs in its forward pass are missing.
    real = {"latent", "sgd"}
    assert rules & real if recipe.optimizer.rule == "real" else recipe.optimizer.rule in rules
    total = 3 * recipe.epochs
    for field, value in schedules.values(0).items():
        assert value == ends(recipe.optimizer.scheduled()[field])[0]
    for field, value in schedules.values(total).items():
        chosen = ends(recipe.optimizer.scheduled()[field])
        assert len(chosen) == 1 or value == chosen[-1]


def test_the_papers_experiments_are_there() -> None:
    names = set(list_recipes())
    assert {f"cifar10-{mode}-{norm}" for mode in ("biased", "unbiased") for norm in ("bn", "ln")} <= names
    assert {"cifar10-paper", "cifar10-code", "bop-sec52", "imagenet-xnornet", "imagenet-birealnet18"} <= names
    scheduled = {f"cifar10-schedule-{name}-{way}" for name in ("gamma", "sigma", "tau") for way in ("down", "up")}
    assert scheduled | {f"{name}-biased" for name in scheduled} <= names
    imagenet = {f"imagenet-{net}{run}" for net in ("xnornet", "birealnet18") for run in ("", "-bop", "-latent", "-300")}
    assert imagenet | {"imagenet-birealnet18-330"} <= names


def test_schedule_ends_early_and_holds() -> None:
    recipe = load_recipe("imagenet-birealnet18-330")
    schedule = build_schedule(recipe.optimizer.scheduled()["gamma"], 1000)
    assert isinstance(schedule, Schedule)
    values = [schedule.value(step, 330_000) for step in (0, 150_000, 300_000, 329_999)]
    assert values == pytest.approx([1e-7, 5.5e-8, 1e-8, 1e-8])


def test_exponential_schedule_counts_epochs() -> None:
    recipe = load_recipe("bop-sec52")
    arguments = network_arguments(recipe, 10, 32) | {"width": 2}
    optimizer = build_optimizer(recipe.optimizer, build_network("binarynet", arguments))
    schedules = build_schedules(recipe, optimizer, 1000)
    gammas = [schedules.values(step)["gamma"] for step in (0, 99_999, 100_000, 499_999)]
    assert gammas == pytest.approx([1e-4, 1e-4, 1e-5, 1e-8])


@pytest.mark.parametrize("name", ["digits", "bop-sec52", "cifar10-schedule-tau-up", "imagenet-xnornet"])
def test_resolved_recipe_is_written_back_the_same(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml())
    assert load_recipe(path) == recipe
    assert load_recipe(path).to_toml() == recipe.to_toml()
    assert tomllib.loads(recipe.to_toml())["execution"]["precision"] == "fp32"


def test_overrides_reach_nested_values() -> None:
    changes = ["epochs=3", "optimizer.gamma.end=1e-3", "network.arguments.width=8", "data.augment=false", "title=x y"]
    recipe = load_recipe("digits", changes)
    assert (recipe.epochs, recipe.title, recipe.data.augment) == (3, "x y", False)
    assert recipe.network.arguments["width"] == 8
    assert ends(recipe.optimizer.scheduled()["gamma"]) == (1e-2, 1e-3)


def test_override_replaces_a_schedule_by_a_number() -> None:
    assert load_recipe("digits", ["optimizer.gamma=1e-4"]).optimizer.scheduled()["gamma"] == 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("epoch=3", "unknown key 'epoch': did you mean 'epochs'?"),
        ("optimizer.gama=1e-3", "unknown key 'optimizer.gama': did you mean 'gamma'?"),
        ("epochs=0", "epochs = 0: expected 1 or more"),
        ("epochs=2.5", "epochs = 2.5: expected an integer"),
        ("epochs=true", "epochs = True: expected an integer"),
        ("batch_size=1", "batch_size = 1: expected 2 or more"),
        ("optimizer.gamma=-1.0", "optimizer.gamma: gamma must lie in"),
        ("optimizer.gamma=fast", "optimizer.gamma = 'fast': expected a number"),
        ("optimizer.gamma.end=0.0", "optimizer.gamma.end = 0.0: expected more than 0"),
        ("optimizer.gamma.factor=2.0", "optimizer.gamma.factor has no meaning for 'geometric': remove it"),
        ("optimizer.gamma.kind=geometrc", "did you mean 'geometric'?"),
        ("optimizer.rule=bop", "has no meaning for 'bop': remove it"),
        ("optimizer.rule=bop2n", "did you mean 'bop2nd'?"),
        ("execution.precision=bf61", "did you mean 'bf16'?"),
        ("data.limit=1", "data.limit = 1: expected 2 or more"),
        ("optimizer.gamma={start = 1e-3}", "key 'optimizer.gamma.kind' is missing"),
        ("optimizer.gamma.kind=step", "expected one of number, linear"),
        ("optimizer.gamma=inf", "expected a finite number"),
        ("optimizer.tau=true", "optimizer.tau = True: expected a number"),
        ("optimizer.accumulate=7", "accumulate = 7 does not divide batch_size = 50"),
        ("epochs", "expected key=value"),
        ("=3", "expected key=value"),
        ("epochs.x=3", "'epochs' is the single value"),
    ],
)
def test_wrong_values_are_refused(change: str, message: str) -> None:
    with pytest.raises(TrainError) as caught:
        load_recipe("digits", [change])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_values_are_named(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text(
        "\n".join(line for line in (RECIPES / "digits.toml").read_text().splitlines() if "sigma" not in line)
    )
    with pytest.raises(TrainError, match=r"key 'optimizer\.sigma' is missing"):
        load_recipe(path)
    path.write_text('name = "x"\n')
    with pytest.raises(TrainError, match="key 'epochs' is missing"):
        load_recipe(path)


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(TrainError, match="did you mean 'digits'"):
        load_recipe("digit")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="cannot read recipe"):
        load_recipe(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = = 3")
    with pytest.raises(TrainError, match="is not valid TOML"):
        load_recipe(broken)


def test_switch_needs_its_place_in_the_run() -> None:
    switch = ["optimizer.switch.epoch=5", "optimizer.switch.gamma=1e-3", "optimizer.switch.tau=1e-6"]
    recipe = load_recipe("digits", [*switch, "epochs=8"])
    assert recipe.optimizer.switch is not None
    assert plain(recipe)["optimizer"]["switch"] == {"epoch": 5, "gamma": 1e-3, "tau": 1e-6}
    with pytest.raises(TrainError, match=r"switch\.epoch = 5: expected 1 to 4"):
        load_recipe("digits", [*switch, "epochs=5"])


def test_network_arguments_are_checked() -> None:
    recipe = load_recipe("digits", ["network.arguments.widht=3"])
    with pytest.raises(TrainError, match=r"network\.arguments\.widht.*did you mean 'width'"):
        network_arguments(recipe, 10, 32)


def test_a_recipe_is_frozen() -> None:
    recipe: Recipe = load_recipe("digits")
    with pytest.raises(ValidationError, match="frozen"):
        recipe.epochs = 3


def test_every_flip_rule_has_a_recipe_of_its_own_fields() -> None:
    """A rule of the registry is one of the recipe, with its defaults, ranges and choices; nothing is written twice."""
    assert {name for name, rule in RULES.items() if rule.binary} == set(OPTIMIZERS) - {"latent", "real"}
    for name, model in OPTIMIZERS.items():
        if name in ("latent", "real"):
            continue
        rule = RULES[name]
        read = model.model_validate({"rule": name, "lr": 1e-2, **dict.fromkeys(rule.scheduled, 0.5)})
        assert set(read.scheduled()) == {"lr", *rule.scheduled}
        assert all(value == rule.defaults[field] for field, value in read.fields().items())
        assert {"track_flips", "capturable"}.isdisjoint(read.fields())


def test_recipe_of_version_0_1_still_loads(tmp_path: Path) -> None:
    """It had eps, also for rules without one."""
    table = (RECIPES / "cifar10-bop.toml").read_text().replace('rule = "bop"', 'rule = "bop"\neps = 1e-10')
    (tmp_path / "recipe.toml").write_text(table)
    assert load_recipe(tmp_path / "recipe.toml") == load_recipe("cifar10-bop")
