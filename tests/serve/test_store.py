from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bitedge.serve.api.errors import ServeError, UnknownModelError
from bitedge.serve.models.registry import Event, ModelStore
from bitedge.serve.models.repository import scan, scan_all

Pair = tuple[Path, Path]


def replace_file(target: Path, data: bytes) -> None:
    temporary = target.with_name("new")
    temporary.write_bytes(data)
    temporary.replace(target)


def kinds(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.name, event.version) for event in events]


@pytest.fixture
def store(repository: Path) -> ModelStore:
    store = ModelStore(repository)
    store.refresh()
    return store


def test_versions_are_found_and_the_newest_serves(store: ModelStore, networks: Pair) -> None:
    assert store.get().name == "first"
    assert store.get("first").version == "2"
    assert store.get("first", "1").version == "1"
    assert store.get("first", "1").sha256 != store.get("first", "2").sha256
    assert store.ready


def test_version_ten_is_newer_than_version_nine(repository: Path, networks: Pair) -> None:
    for version in ("9", "10"):
        (repository / "first" / version).mkdir()
        shutil.copy(networks[0], repository / "first" / version)
    store = ModelStore(repository)
    store.refresh()
    assert store.get("first").version == "10"


def test_nothing_is_loaded_twice(store: ModelStore) -> None:
    model = store.get("first")
    assert store.refresh() == []
    assert store.get("first") is model


def test_a_new_version_takes_over(store: ModelStore, repository: Path, networks: Pair) -> None:
    (repository / "first" / "3").mkdir()
    shutil.copy(networks[0], repository / "first" / "3")
    assert kinds(store.refresh()) == [("loaded", "first", "3")]
    assert store.get("first").version == "3"


def test_a_changed_file_is_swapped(store: ModelStore, repository: Path, networks: Pair) -> None:
    old = store.get("second")
    replace_file(repository / "second/1/model.gguf", networks[0].read_bytes())
    assert kinds(store.refresh()) == [("replaced", "second", "1")]
    assert store.get("second").sha256 != old.sha256
    assert old.retired


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "golden"])
def test_a_bad_file_is_reported_and_the_old_one_stays(
    store: ModelStore, repository: Path, networks: Pair, damage: str
) -> None:
    old, data = store.get("second"), bytearray(networks[1].read_bytes())
    if damage == "truncated":
        data = data[:-100]
    elif damage == "flipped":
        data[-50] ^= 1
    elif damage == "empty":
        data.clear()
    else:
        data = wrong_golden(bytes(data))
    replace_file(repository / "second/1/model.gguf", bytes(data))
    assert kinds(store.refresh()) == [("refused", "second", "1")]
    assert store.get("second") is old
    (entry,) = store.table["second"].values()
    assert entry.state == "READY"
    assert entry.reason
    assert store.refresh() == [], "a refused file is not tried again until it changes"
    replace_file(repository / "second/1/model.gguf", networks[0].read_bytes())
    assert kinds(store.refresh()) == [("replaced", "second", "1")]
    assert store.table["second"]["1"].reason == ""


def wrong_golden(data: bytes) -> bytearray:
    """A file that is whole and has its right checksum, but whose network no longer gives the golden answers."""
    import hashlib

    from gguf import GGUFReader
    from tests.serve.temporary import as_file

    with as_file(data) as path:
        tensor = next(t for t in GGUFReader(path).tensors if t.name == "golden.output")
        offset = int(tensor.data_offset)
    changed = bytearray(data)
    changed[offset + 3] ^= 0x40  # the exponent of the first expected number
    at = data.index(b"bitedge.sha256") + len(b"bitedge.sha256") + 4 + 8
    changed[at : at + 64] = b"0" * 64
    changed[at : at + 64] = hashlib.sha256(bytes(changed)).hexdigest().encode()
    return changed


def test_a_bad_new_version_does_not_become_the_newest(store: ModelStore, repository: Path) -> None:
    (repository / "first" / "3").mkdir()
    (repository / "first" / "3" / "model.gguf").write_bytes(b"GGUF, but not really")
    assert kinds(store.refresh()) == [("refused", "first", "3")]
    assert store.get("first").version == "2"
    with pytest.raises(UnknownModelError, match="no version 3"):
        store.get("first", "3")


def test_a_file_overwritten_in_place_does_not_touch_what_serves(store: ModelStore, repository: Path) -> None:
    from tests.serve.pictures import pixels

    run = store.get("second").context()
    before = run(pixels()[None])
    os.truncate(repository / "second/1/model.gguf", 10)
    assert (run(pixels()[None]) == before).all()
    assert (store.get("second").context()(pixels()[None]) == before).all()


def test_a_removed_version_goes_after_the_second_look(store: ModelStore, repository: Path) -> None:
    shutil.rmtree(repository / "first" / "2")
    assert store.refresh() == []
    assert kinds(store.refresh()) == [("removed", "first", "2")]
    assert store.get("first").version == "1"
    shutil.rmtree(repository / "second")
    store.refresh()
    store.refresh()
    assert "second" not in store.table


def test_a_folder_that_is_away_for_a_moment_changes_nothing(store: ModelStore, repository: Path) -> None:
    away = repository.with_name("away")
    repository.rename(away)
    with pytest.raises(ServeError, match="no such folder"):
        store.refresh()
    away.rename(repository)
    assert store.refresh() == []
    assert store.get("first").version == "2"


def test_unload_and_load(store: ModelStore) -> None:
    store.unload("first")
    with pytest.raises(UnknownModelError):
        store.get("first")
    assert store.refresh() == []
    assert store.default_name == "second"
    store.load("first")
    assert store.get("first").version == "2"
    for call in (store.load, store.unload):
        with pytest.raises(UnknownModelError, match="there is no model nobody"):
            call("nobody")


def test_load_of_a_bad_model_says_why(store: ModelStore, repository: Path) -> None:
    (repository / "third").mkdir()
    (repository / "third" / "model.gguf").write_bytes(b"nonsense")
    with pytest.raises(ServeError, match="model third version 1 is refused"):
        store.load("third")


def test_the_default_model_can_be_named(repository: Path) -> None:
    store = ModelStore(repository, default="second")
    store.refresh()
    assert store.get().name == "second"


@pytest.mark.parametrize("layout", ["model.gguf", "export/model.gguf", "other.gguf"])
def test_a_single_model_is_found_where_it_lies(tmp_path: Path, networks: Pair, layout: str) -> None:
    path = tmp_path / "digits" / layout
    path.parent.mkdir(parents=True)
    shutil.copy(networks[0], path)
    name = "other" if layout == "other.gguf" else "digits"
    assert [(c.name, c.version, c.path) for c in scan(tmp_path / "digits")] == [(name, "1", path)]
    assert scan(path)[0].name == name


def test_single_files_are_served_side_by_side(tmp_path: Path, networks: Pair, repository: Path) -> None:
    files = tmp_path / "cats.gguf", tmp_path / "dogs.gguf"
    for file, network in zip(files, networks, strict=True):
        shutil.copy(network, file)
    store = ModelStore((*files, repository))
    store.refresh()
    assert {(entry.candidate.name, entry.candidate.version) for entry in store.entries()} == {
        ("cats", "1"),
        ("dogs", "1"),
        ("first", "1"),
        ("first", "2"),
        ("second", "1"),
    }
    assert store.get("cats").sha256 != store.get("dogs").sha256
    replace_file(files[0], networks[1].read_bytes())
    assert kinds(store.refresh()) == [("replaced", "cats", "1")]
    assert store.get("cats").sha256 == store.get("dogs").sha256


def test_two_files_of_one_name_are_refused(tmp_path: Path, networks: Pair, repository: Path) -> None:
    shutil.copy(networks[0], tmp_path / "second.gguf")
    with pytest.raises(ServeError, match="are both called second; rename one"):
        scan_all((repository, tmp_path / "second.gguf"))
    with pytest.raises(ServeError, match="expected one model to name, got 2"):
        scan_all((repository, tmp_path / "second.gguf"), "x")


def test_what_is_no_model_is_passed_over(repository: Path) -> None:
    for name in (".hidden/1", "bad name/1", "first/zero", "first/0", "empty"):
        (repository / name).mkdir(parents=True)
        (repository / name / "model.gguf").write_bytes(b"") if "/" in name else None
    (repository / "README.md").write_text("models")
    assert [(c.name, c.version) for c in scan(repository)] == [("first", "1"), ("first", "2"), ("second", "1")]
