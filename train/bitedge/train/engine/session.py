"""The loop of one run: steps, epochs, checkpoints, log."""

from __future__ import annotations

import json
import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bitedge.train.engine.build import build_dataset, build_network, network_arguments
from bitedge.train.engine.checkpoint import (
    all_finite,
    load_module,
    load_state,
    random_state,
    restore_random_state,
    save_module,
    save_state,
    write_text,
)
from bitedge.train.engine.curves import plot_runs
from bitedge.train.engine.distributed import Group, check_identical
from bitedge.train.engine.environment import describe_environment
from bitedge.train.engine.evaluate import Score, evaluate
from bitedge.train.engine.execution import AUTOCAST
from bitedge.train.engine.metrics import MetricsLog
from bitedge.train.engine.objective import Objective
from bitedge.train.engine.optimization import Optimization
from bitedge.train.engine.progress import Progress
from bitedge.train.engine.renorm import reestimate_norms
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import Recipe

EVALUATION_BATCH = 250
STATE_VERSION = 1


class Session:
    """One process's part in a run, from the first step or from the last checkpoint to the end."""

    def __init__(self, recipe: Recipe, folder: Path, root: Path | None, group: Group, report: Progress) -> None:
        self.recipe, self.folder, self.group, self.report = recipe, folder, group, report
        self.root = root
        self.dataset = build_dataset(recipe.data, root)
        self.selected_on = "validation" if self.dataset.size("validation") else "test"
        torch.manual_seed(recipe.seed)
        height = self.dataset.preprocessing["size"][0]
        self.arguments = network_arguments(recipe, len(self.dataset.labels), height)
        layout = torch.channels_last if recipe.execution.channels_last else torch.contiguous_format
        module = build_network(recipe.network.name, self.arguments).to(group.device, memory_format=layout)  # type: ignore[call-overload]
        if recipe.execution.sync_batchnorm:
            if group.device.type != "cuda":
                raise TrainError("execution.sync_batchnorm needs GPUs: torch has it for CUDA only; set it to false")
            module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        self.module: nn.Module = module
        self.batches = self.dataset.loader(
            "train",
            batch_size=recipe.batch_size,
            device=group.device,
            seed=recipe.seed,
            augment=recipe.data.augment,
            rank=group.rank,
            world=group.world,
        )
        self.objective = Objective(recipe.loss, len(self.dataset.labels), group.device)
        watch = recipe.execution.telemetry_steps if group.leads else 0
        self.optimization = Optimization(recipe, self.module, len(self.batches), watch=watch)
        self.epoch = 0  # finished epochs
        self.step = 0  # finished steps of the current epoch
        self.seconds = 0.0
        self.sums = torch.zeros(3, dtype=torch.float64, device=group.device)  # loss, hits, images of this epoch
        self.best: dict[str, Any] = {"epoch": 0, "accuracy": -1.0, "loss": 0.0}
        self.last: dict[str, Any] = {}

    def run(self) -> None:
        """Go on from where the folder says, to the end."""
        resumed = (self.folder / "state.pt").exists()
        if resumed:
            self._restore(load_state(self.folder / "state.pt"))
        log = MetricsLog(self.folder, keep_epochs=self.epoch) if self.group.leads else None
        if self.group.leads:
            about = describe_environment(self.group)
            write_text(self.folder / "environment.json", json.dumps(about, indent=2) + "\n")
        if resumed and self.step == 0:
            self._publish(log)  # a kill may have come between the state and the files that follow from it
        network = self._wrapped()
        while self.epoch < self.recipe.epochs:
            row = self._finish_epoch(self._train_epoch(network))
            if log is not None:
                log.add(row)
            self._checkpoint()
            self._publish(log)
            self.report.note(describe(row, self.recipe.epochs))
        self._conclude(log)

    def _wrapped(self) -> nn.Module:
        """The module as it is called in training: in several processes, compiled, or plain."""
        network = self.module
        if self.group.world > 1:
            device_ids = [self.group.device.index] if self.group.device.type == "cuda" else None
            network = DistributedDataParallel(network, device_ids=device_ids)
        if self.recipe.execution.compile:
            network.compile()
        return network.train()

    def _train_epoch(self, network: nn.Module) -> dict[str, Any]:
        """Take the steps that are left of the current epoch and return what they amounted to."""
        steps = len(self.batches)
        self.report.start(self.epoch + 1, self.recipe.epochs, steps, self.step)
        begun, spent, first = time.perf_counter(), self.seconds, self.step
        for images, labels in self.batches.epoch(self.epoch, self.step):
            self._train_step(network, images, labels)
            self.step += 1
            self.report.step()
            done = self.epoch * steps + self.step
            if done % self.recipe.execution.hash_steps == 0:
                check_identical(self.module, self.group, done)
            every = self.recipe.execution.checkpoint_steps
            if every and done % every == 0 and self.step < steps:
                self.seconds += time.perf_counter() - begun
                begun = time.perf_counter()
                self._checkpoint()
        self.seconds += time.perf_counter() - begun
        self._require_finite()
        loss, hits, count = self.group.sum(self.sums).tolist()
        return {
            "epoch": self.epoch + 1,
            "step": (self.epoch + 1) * steps,
            "train_loss": loss / count,
            "train_accuracy": hits / count,
            "images_per_second": (self.step - first) * self.recipe.batch_size / max(self.seconds - spent, 1e-9),
            "seconds": self.seconds,
        }

    def _train_step(self, network: nn.Module, images: Tensor, labels: Tensor) -> None:
        if not self.recipe.execution.channels_last:
            images = images.contiguous()
        with self._autocast():  # the teacher's forward pass, too; torch keeps losses in float32
            logits = network(images)
            loss = self.objective(logits.float(), labels, images)
        self.optimization.backward(loss)
        self.optimization.step()
        self.sums[0] += loss.detach() * len(labels)
        self.sums[1] += (logits.detach().argmax(1) == labels).sum()
        self.sums[2] += len(labels)
        if self.group.device.type == "cpu":  # a GPU would have to wait; there it is seen before the next checkpoint
            self._require_finite()

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.recipe.execution.precision)
        return nullcontext() if dtype is None else torch.autocast(self.group.device.type, dtype)

    def _require_finite(self) -> None:
        """Stop as soon as a loss is not a number; the state of before is kept."""
        if math.isfinite(self.sums[0].item()):
            return
        kept = f"the checkpoint of epoch {self.epoch} is kept" if self.epoch else "no epoch was finished"
        raise TrainError(
            f"the loss is not finite at epoch {self.epoch + 1}, step {self.step + 1}; {kept} in {self.folder}; "
            "start again with a lower optimizer.lr, or look for broken images"
        )

    def _finish_epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Measure the network after an epoch and move the position on."""
        check_identical(self.module, self.group, row["step"])
        self._renorm()
        score = self._score(self.selected_on)
        self.epoch, self.step = self.epoch + 1, 0
        self.sums.zero_()
        self.last = {"epoch": self.epoch, **score.as_dict()}
        if (score.accuracy, -score.loss) > (self.best["accuracy"], -self.best["loss"]):
            self.best = dict(self.last)
        row |= {"loss": score.loss, "accuracy": score.accuracy, "top5": score.top5, "split": self.selected_on}
        for advice in self.optimization.advice():
            self.report.note(f"warning: {advice}")
        return row | self.optimization.epoch_figures()

    def _renorm(self) -> None:
        """Take BatchNorm's statistics anew, where the recipe asks for it, from training images as they are."""
        if not self.recipe.renorm:
            return
        loader = self.dataset.loader(
            "train", batch_size=self.recipe.batch_size, device=self.group.device, seed=self.recipe.seed, augment=False
        )
        reestimate_norms(self.module, loader, self.recipe.renorm)
        self.group.broadcast(self.module)

    def _score(self, split: str) -> Score:
        loader = self.dataset.loader(
            split,
            batch_size=EVALUATION_BATCH * self.group.world,
            device=self.group.device,
            rank=self.group.rank,
            world=self.group.world,
        )
        return evaluate(self.module, loader, self.group, channels_last=self.recipe.execution.channels_last)

    def _checkpoint(self) -> None:
        """Write `state.pt`, unless the weights are broken."""
        self._require_finite()
        sums = self.group.sum(self.sums.clone())
        if not self.group.leads:
            return
        if not all_finite(self.module):
            raise TrainError(f"a weight is not finite after epoch {self.epoch}; the checkpoint before it is kept")
        state = {
            "version": STATE_VERSION,
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "sums": sums.cpu(),
            "best": self.best,
            "last": self.last,
            "module": self.module.state_dict(),
            "optimization": self.optimization.state_dict(),
            "random": random_state(self.group.device),
        }
        save_state(self.folder / "state.pt", state)

    def _restore(self, state: dict[str, Any]) -> None:
        if state.get("version") != STATE_VERSION:
            raise TrainError(f"{self.folder / 'state.pt'} has version {state.get('version')}, expected {STATE_VERSION}")
        try:
            self.epoch, self.step, self.seconds = state["epoch"], state["step"], state["seconds"]
            self.best, self.last = state["best"], state["last"]
            if self.group.leads:  # they were added up over all processes
                self.sums.copy_(state["sums"])
            self.module.load_state_dict(state["module"])
            self.optimization.load_state_dict(state["optimization"])
            restore_random_state(state["random"], self.group.device)
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise TrainError(
                f"{self.folder / 'state.pt'} does not hold the state of this run ({error!r}): another version of "
                "bitedge wrote it or it is damaged; start again with another --out"
            ) from error
        self.report.note(f"resuming {self.folder} after epoch {self.epoch}, step {self.step}")

    def _publish(self, log: MetricsLog | None, tested: dict[str, Any] | None = None) -> None:
        """Write what others read: the weights of the last and of the best epoch, and the facts about them."""
        if log is None:
            return
        save_module(self.folder / "last.safetensors", self.module)
        if self.best["epoch"] == self.epoch:
            save_module(self.folder / "best.safetensors", self.module)
        recipe = self.recipe
        about = {
            "network": {"name": recipe.network.name, "arguments": self.arguments},
            "labels": list(self.dataset.labels),
            "preprocessing": dict(self.dataset.preprocessing),
            "data": {"name": recipe.data.name, "root": None if self.root is None else str(self.root)},
            "training": {
                "recipe": recipe.name,
                "seed": recipe.seed,
                "epochs": recipe.epochs,
                "epoch": self.epoch,
                "selected_on": self.selected_on,
                "best": self.best,
                "last": self.last,
                "test": tested,
                "seconds": round(self.seconds, 3),
            },
        }
        write_text(self.folder / "model.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")

    def _conclude(self, log: MetricsLog | None) -> None:
        """Measure the best and the last weights on the test split, once, and write the result down."""
        tested: dict[str, Any] = {"last": self._score("test").as_dict()}
        if self.best["epoch"] == self.epoch:
            tested["best"] = tested["last"]
        else:
            last = {name: value.clone() for name, value in self.module.state_dict().items()}
            if self.group.leads:
                load_module(self.folder / "best.safetensors", self.module)
            self.group.broadcast(self.module)
            tested["best"] = self._score("test").as_dict()
            self.module.load_state_dict(last)
        self._publish(log, tested)
        if log is not None:
            plot_runs(
                self.folder / "curves.png", {self.recipe.name: log.rows}, f"{self.recipe.name}, seed {self.recipe.seed}"
            )
            log.close()
        best, end = tested["best"]["accuracy"], tested["last"]["accuracy"]
        self.report.note(
            f"test accuracy {100 * best:.2f} % (best epoch {self.best['epoch']} by {self.selected_on}), "
            f"{100 * end:.2f} % (last epoch); {self.seconds:.0f} s of training; {self.folder}"
        )


def describe(row: dict[str, Any], epochs: int) -> str:
    """One line about an epoch."""
    text = (
        f"epoch {row['epoch']}/{epochs}  loss {row['train_loss']:.4f}  train {100 * row['train_accuracy']:.2f} %  "
        f"{row['split']} {100 * row['accuracy']:.2f} %"
    )
    if "flip_ratio" in row:
        text += f"  flips {row['flip_ratio']:.1e}"
    return f"{text}  {row['images_per_second']:.0f} images/s"
