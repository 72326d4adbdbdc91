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

from bitedge.train.engine.average import RealAverage
from bitedge.train.engine.checkpoint import (
    all_finite,
    load_module,
    load_state,
    random_state,
    restore_random_state,
    save_state,
    write_text,
)
from bitedge.train.engine.curves import plot_runs
from bitedge.train.engine.distributed import Group, check_identical
from bitedge.train.engine.environment import describe_environment
from bitedge.train.engine.execution import autocast
from bitedge.train.engine.initialize import initialize_from, warm_averages
from bitedge.train.engine.measurement import Measurement
from bitedge.train.engine.metrics import MetricsLog
from bitedge.train.engine.objective import Objective
from bitedge.train.engine.optimization import Optimization
from bitedge.train.engine.parts import Given, find_dataset, make_module, unsynced, wrap_module
from bitedge.train.engine.progress import Progress
from bitedge.train.engine.publish import describe_epoch, publish
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import Recipe

STATE_VERSION = 2


class Session:
    """One process's part in a run, from the first step or from the last checkpoint to the end."""

    def __init__(
        self, recipe: Recipe, folder: Path, root: Path | None, group: Group, report: Progress, given: Given
    ) -> None:
        self.recipe, self.folder, self.group, self.report, self.root = recipe, folder, group, report, root
        self.callbacks = list(given.callbacks) if group.leads else []
        self.dataset = find_dataset(recipe, root, given)
        self.selected_on = "validation" if self.dataset.size("validation") else "test"
        self.module, self.arguments = make_module(recipe, self.dataset, group, given)
        self.batches = self.dataset.loader(
            "train",
            batch_size=recipe.batch_size,
            device=group.device,
            seed=recipe.seed,
            augment=recipe.data.augment,
            rank=group.rank,
            world=group.world,
        )
        labels, preprocessing = self.dataset.labels, self.dataset.preprocessing
        self.measurement = Measurement(recipe, self.dataset, self.module, group)
        self.objective = Objective(recipe.loss, labels, preprocessing, group.device, given.teacher)
        self.objective.remember(self.dataset, group.device)
        real = {} if recipe.network.init is None else initialize_from(self.module, Path(recipe.network.init))
        watch = recipe.execution.telemetry_steps if group.leads else 0
        self.optimization = Optimization(recipe, self.module, len(self.batches), watch=watch)
        if real:
            warm_averages(self.optimization.optimizer, real)
        self.average = RealAverage(self.module, recipe.ema) if recipe.ema else None
        self.epoch = 0  # finished epochs
        self.step = 0  # finished steps of the current epoch
        self.seconds = 0.0
        self.sums = torch.zeros(3, dtype=torch.float64, device=group.device)  # loss, hits, images of this epoch
        self.best: dict[str, Any] = {"epoch": 0, "accuracy": -1.0, "loss": 0.0}
        self.last: dict[str, Any] = {}

    @property
    def done(self) -> int:
        """Finished steps of the whole run."""
        return self.epoch * len(self.batches) + self.step

    def run(self) -> None:
        """Go on from where the folder says, to the end."""
        resumed = (self.folder / "state.pt").exists()
        if resumed:
            self._restore(load_state(self.folder / "state.pt"))
        log = MetricsLog(self.folder, keep_epochs=self.epoch) if self.group.leads else None
        if self.group.leads:
            about = describe_environment(self.group)
            write_text(self.folder / "environment.json", json.dumps(about, indent=2) + "\n")
        for callback in self.callbacks:
            callback.start(self.recipe, self.folder, self.done)
        if resumed and self.step == 0:
            self._publish()  # a kill may have come between the state and the files that follow from it
        network = wrap_module(self.module, self.recipe, self.group)
        while self.epoch < self.recipe.epochs:
            row = self._finish_epoch(self._train_epoch(network))
            if log is not None:
                log.add(row)
            self._checkpoint()
            self._publish()
            self.report.note(describe_epoch(row, self.recipe.epochs))
            for callback in self.callbacks:
                callback.epoch(row)
        self._conclude(log)

    def _train_epoch(self, network: nn.Module) -> dict[str, Any]:
        """Train the rest of the epoch; return its metrics."""
        steps = len(self.batches)
        self.report.start(self.epoch + 1, self.recipe.epochs, steps, self.step)
        begun, spent, first = time.perf_counter(), self.seconds, self.step
        for images, labels in self.batches.epoch(self.epoch, self.step):
            self._train_step(network, images, labels)
            self.step += 1
            self.report.step()
            if self.done % self.recipe.execution.hash_steps == 0:
                check_identical(self.module, self.group, self.done)
            every = self.recipe.execution.checkpoint_steps
            if every and self.done % every == 0 and self.step < steps:
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
        before = self.sums.clone() if self.callbacks else self.sums
        parts = self.recipe.optimizer.accumulate
        which = getattr(self.batches, "latest", labels)  # of images in memory: their places in the split
        chunks = zip(images.chunk(parts), labels.chunk(parts), which.chunk(parts), strict=True)
        for index, (some, theirs, places) in enumerate(chunks):
            with unsynced(network) if index < parts - 1 else nullcontext():
                self._add_gradients(network, some, theirs, places, len(some) / len(images))
        taken = self.optimization.step()
        if taken and self.average is not None:
            self.average.update()
        if self.group.device.type == "cpu":  # a GPU would have to wait; there it is seen before the next checkpoint
            self._require_finite()
        if self.callbacks:
            loss, _, count = (self.sums - before).tolist()
            self._call_back(loss / count)

    def _add_gradients(self, network: nn.Module, images: Tensor, labels: Tensor, which: Tensor, share: float) -> None:
        """Add the gradients of a part of a batch, weighted by its share of the images."""
        # The teacher's forward pass, too; torch keeps losses in float32.
        with autocast(self.recipe.execution, self.group.device):
            logits = network(images)
            loss = self.objective(logits.float(), labels, images, which)
        self.optimization.backward(loss * share if share < 1 else loss)
        self.sums[0] += loss.detach() * len(labels)
        classes = labels if labels.dim() == 1 else labels.argmax(1)  # of mixed images, the larger part counts
        self.sums[1] += (logits.detach().argmax(1) == classes).sum()
        self.sums[2] += len(labels)

    def _call_back(self, loss: float) -> None:
        figures = {"loss": loss, "skipped_steps": self.optimization.skipped}
        figures |= self.optimization.schedules.values(max(0, self.optimization.schedules.current - 1))
        for callback in self.callbacks:
            callback.step(self.done + 1, figures)

    def _require_finite(self) -> None:
        """Stop as soon as a loss is not a number; the state of before is kept."""
        if math.isfinite(self.sums[0].item()):
            return
        kept = f"the checkpoint of epoch {self.epoch} is kept" if self.epoch else "no epoch was finished"
        raise TrainError(
            f"the loss is not finite at epoch {self.epoch + 1}, step {self.step + 1}; {kept} in {self.folder}; "
            "start again with a lower optimizer.lr, or look for broken images"
        )

    def _averaged(self) -> AbstractContextManager[None]:
        """The network as it is measured and published: with the averages of the real parameters, if there are any."""
        return nullcontext() if self.average is None else self.average.applied()

    def _finish_epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Measure the network after an epoch and move the position on."""
        check_identical(self.module, self.group, row["step"])
        with self._averaged():
            self.measurement.renorm()
            self.group.broadcast(self.module)  # each process has statistics of its own images: the first one's count
            score = self.measurement.score(self.selected_on)
        self.epoch, self.step = self.epoch + 1, 0
        self.sums.zero_()
        self.last = {"epoch": self.epoch, **score.as_dict()}
        if (score.accuracy, -score.loss) > (self.best["accuracy"], -self.best["loss"]):
            self.best = dict(self.last)
        row |= {"loss": score.loss, "accuracy": score.accuracy, "top5": score.top5, "split": self.selected_on}
        for advice in self.optimization.advice():
            self.report.note(f"warning: {advice}")
        return row | self.optimization.epoch_figures()

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
            "average": None if self.average is None else self.average.state_dict(),
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
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            restore_random_state(state["random"], self.group.device)
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise TrainError(
                f"{self.folder / 'state.pt'} does not hold the state of this run ({error!r}): another version of "
                "bitedge wrote it or it is damaged; start again with another --out"
            ) from error
        self.report.note(f"resuming {self.folder} after epoch {self.epoch}, step {self.step}")

    def _publish(self, tested: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write what others read; return the facts about the training."""
        progress = {
            "epoch": self.epoch,
            "selected_on": self.selected_on,
            "best": self.best,
            "last": self.last,
            "test": tested,
            "seconds": round(self.seconds, 3),
        }
        if self.group.leads:
            with self._averaged():
                publish(
                    self.folder,
                    self.module,
                    self.recipe,
                    self.dataset,
                    arguments=self.arguments,
                    root=self.root,
                    progress=progress,
                    is_best=self.best["epoch"] == self.epoch,
                )
        return progress

    def _conclude(self, log: MetricsLog | None) -> None:
        """Measure the best and the last weights on the test split, once, and write the result down."""
        with self._averaged():
            tested: dict[str, Any] = {"last": self.measurement.score("test").as_dict()}
        if self.best["epoch"] == self.epoch:
            tested["best"] = tested["last"]
        else:
            last = {name: value.clone() for name, value in self.module.state_dict().items()}
            if self.group.leads:
                load_module(self.folder / "best.safetensors", self.module)
            self.group.broadcast(self.module)
            tested["best"] = self.measurement.score("test").as_dict()
            self.module.load_state_dict(last)
        progress = self._publish(tested)
        if log is not None:
            title = f"{self.recipe.name}, seed {self.recipe.seed}"
            plot_runs(self.folder / "curves.png", {self.recipe.name: log.rows}, title)
        for callback in self.callbacks:
            callback.end(progress)
        skipped = self.optimization.skipped
        if skipped:
            self.report.note(f"warning: {skipped} steps were left out because a gradient was not finite")
        best, end = tested["best"]["accuracy"], tested["last"]["accuracy"]
        self.report.note(
            f"test accuracy {100 * best:.2f} % (best epoch {self.best['epoch']} by {self.selected_on}), "
            f"{100 * end:.2f} % (last epoch); {self.seconds:.0f} s of training; {self.folder}"
        )
