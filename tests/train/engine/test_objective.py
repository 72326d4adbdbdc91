"""The loss by a recipe: plain, softened labels, and a teacher's answers, against formulas written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.train.small_runs import SMALL
from torch import Tensor, nn

from bitedge.train.data.preprocessing import Normalizer, make_preprocessing
from bitedge.train.engine.metrics import read_rows
from bitedge.train.engine.objective import Objective
from bitedge.train.engine.progress import Silent
from bitedge.train.engine.run import Run, load_run
from bitedge.train.engine.teacher import Teacher
from bitedge.train.engine.trainer import fit
from bitedge.train.errors import TrainError
from bitedge.train.recipes.recipe import LossRecipe, load_recipe

CPU = torch.device("cpu")
LABELS = list("0123456789")
PREPROCESSING = make_preprocessing((32, 32))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("teacher") / "run"
    changes = [*SMALL, "optimizer={rule = 'real', lr = 0.01}"]
    return fit("digits", out=folder, overrides=changes, progress=Silent())


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.rand((8, 3, 32, 32), generator=generator) * 2 - 1
    return torch.randn((8, 10), generator=generator), torch.arange(8), images


def test_plain_loss_is_cross_entropy() -> None:
    logits, labels, images = batch()
    expected = (logits.logsumexp(1) - logits[torch.arange(8), labels]).mean()
    loss = Objective(LossRecipe(), LABELS, PREPROCESSING, CPU)(logits, labels, images)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_smoothing_mixes_the_label_with_all_classes() -> None:
    logits, labels, images = batch()
    told = torch.full((8, 10), 0.01)
    told[torch.arange(8), labels] += 0.9
    expected = -(told * logits.log_softmax(1)).sum(1).mean()
    loss = Objective(LossRecipe(label_smoothing=0.1), LABELS, PREPROCESSING, CPU)(logits, labels, images)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_teacher_is_followed(teacher: Run) -> None:
    logits, labels, _ = batch()
    images = torch.rand((8, 3, *teacher.preprocessing["size"])) * 2 - 1
    recipe = LossRecipe(teacher=str(teacher.folder), teacher_share=0.25, temperature=3.0)
    with torch.no_grad():
        p = (load_run(teacher.folder).module(images) / 3).softmax(1)
    q = (logits / 3).softmax(1)
    hard = (logits.logsumexp(1) - logits[torch.arange(8), labels]).mean()
    expected = 0.75 * hard + 0.25 * 9 * (p * (p.log() - q.log())).sum(1).mean()
    loss = Objective(recipe, LABELS, PREPROCESSING, CPU)(logits, labels, images)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_remembered_answers_are_those_of_the_teacher_and_are_asked_for_once(teacher: Run, tmp_path: Path) -> None:
    common = [*SMALL, "epochs=1", "data.augment=false", f"loss.teacher={teacher.folder}"]
    asked = fit("digits", out=tmp_path / "views", overrides=common, progress=Silent())
    common.append("loss.answers=images")
    first = fit("digits", out=tmp_path / "first", overrides=common, progress=Silent())
    (kept,) = teacher.folder.glob("answers-*.npy")
    data = first.dataset().limited(200)
    images, _ = next(iter(data.loader("train", batch_size=200, shuffle=False).epoch(0)))
    with torch.no_grad():
        expected = load_run(teacher.folder).module(images)
    torch.testing.assert_close(torch.tensor(np.load(kept)), expected, rtol=1e-4, atol=1e-4)
    losses = [read_rows(run.folder / "metrics.jsonl")[0]["train_loss"] for run in (asked, first)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    np.save(kept, np.zeros((200, 10), np.float32))  # the second student reads the file: other answers, another loss
    again = fit("digits", out=tmp_path / "again", overrides=common, progress=Silent())
    assert abs(read_rows(again.folder / "metrics.jsonl")[0]["train_loss"] - losses[1]) > 1e-3
    kept.unlink()


def test_answers_of_mixed_images_are_refused(teacher: Run, tmp_path: Path) -> None:
    changes = [*SMALL, f"loss.teacher={teacher.folder}", "loss.answers=images", "data.mixup=0.2"]
    with pytest.raises(TrainError, match="no answers for mixed images"):
        fit("digits", out=tmp_path / "run", overrides=changes, progress=Silent())


def test_float_twin_has_no_sign_and_learns(teacher: Run) -> None:
    weight = dict(teacher.module.named_parameters())["conv2.weight"].detach()
    assert len(set(weight.flatten().tolist())) > 100
    images = torch.rand((2, 3, *teacher.preprocessing["size"])) * 2 - 1
    nudged = load_run(teacher.folder).module
    with torch.no_grad():
        before = nudged(images)
        dict(nudged.named_parameters())["conv2.weight"].mul_(1.01)  # changes no sign
        assert not torch.equal(nudged(images), before)


def test_student_of_a_teacher_trains_and_resumes(teacher: Run, tmp_path: Path) -> None:
    changes = [*SMALL, f"loss.teacher={teacher.folder}", "renorm=2"]
    run = fit("digits", out=tmp_path / "student", overrides=changes, progress=Silent())
    again = fit("digits", out=tmp_path / "again", overrides=changes, progress=Silent())
    for name, value in run.module.state_dict().items():
        assert torch.equal(value, again.module.state_dict()[name]), name


def test_teacher_of_other_classes_is_refused(teacher: Run) -> None:
    with pytest.raises(TrainError, match="knows 10 classes, the data has 11: it does not know 'x'"):
        Objective(LossRecipe(teacher=str(teacher.folder)), [*LABELS, "x"], PREPROCESSING, CPU)
    with pytest.raises(TrainError, match="two teachers"):
        Objective(LossRecipe(teacher=str(teacher.folder)), LABELS, PREPROCESSING, CPU, teacher.module)
    short = Objective(LossRecipe(), LABELS, PREPROCESSING, CPU, nn.Sequential(nn.Flatten(), nn.Linear(3072, 9)))
    with pytest.raises(TrainError, match=r"logits of shape \[8, 9\], expected \[N, 10\]"):
        short(*batch())


class Pixels(nn.Module):
    """A teacher whose logits are the mean of each colour, weighted: what it is given can be read from its answer."""

    def forward(self, x: Tensor) -> Tensor:
        self.shape = list(x.shape)
        return x.mean((2, 3)) @ torch.arange(1.0, 31.0).reshape(3, 10)


def test_any_module_is_a_teacher_by_its_own_preprocessing_and_order_of_classes() -> None:
    logits, labels, _ = batch()
    pixels = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    theirs = make_preprocessing((32, 32), normalization="imagenet")
    images, expected_input = Normalizer(PREPROCESSING, CPU)(pixels), Normalizer(theirs, CPU)(pixels)
    answers = Pixels()(expected_input)[:, list(range(9, -1, -1))]
    expected = (
        0.5 * (logits.logsumexp(1) - logits[torch.arange(8), labels]).mean() + 0.5 * ((logits - answers) ** 2).mean()
    )
    for preprocessing in (theirs, "imagenet"):
        found = Teacher(Pixels(), preprocessing=preprocessing, labels=LABELS[::-1])
        loss = Objective(LossRecipe(distillation="logits"), LABELS, PREPROCESSING, CPU, found)(logits, labels, images)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_teacher_of_larger_images_gets_them() -> None:
    module = Pixels()
    found = Teacher(module, preprocessing=make_preprocessing((64, 48)))
    Objective(LossRecipe(), LABELS, PREPROCESSING, CPU, found)(*batch())
    assert module.shape == [8, 3, 64, 48]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("loss.label_smoothing=1.5", r"loss.label_smoothing = 1.5: expected 1.0 or less"),
        ("loss.teacher_share=-1", r"loss.teacher_share = -1"),
        ("loss.temperature=0", r"loss.temperature = 0"),
        ("renorm=-1", r"renorm = -1: expected 0 or more"),
    ],
)
def test_bad_values_are_refused(change: str, message: str) -> None:
    with pytest.raises(TrainError, match=message):
        load_recipe("digits", [change])
