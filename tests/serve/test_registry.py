from __future__ import annotations

import gc
import os
import shutil
import weakref
from pathlib import Path

import pytest

from bitedge.serve.api.errors import ServeError, UnknownModelError
from bitedge.serve.models.registry import Event, Registry
from bitedge.serve.models.repository import Root, scan_all

Pair = tuple[Path, Path]


def replace_file(target: Path, data: bytes) -> None:
    temporary = target.with_name("new")
    temporary.write_bytes(data)
    temporary.replace(target)


def kinds(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.name, event.version) for event in events]


@pytest.fixture
def store(repository: Path) -> Registry:
    store = Registry((repository,), default="first")
    store.refresh()
    return store


def test_versions_are_found_and_the_newest_serves(store: Registry, networks: Pair) -> None:
    assert store.get().name == "first"
    assert store.get("first").version == "2"
    assert store.get("first", "1").version == "1"
    assert store.get("first", "1").sha256 != store.get("first", "2").sha256
    assert store.ready


def test_version_ten_is_newer_than_version_nine(repository: Path, networks: Pair) -> None:
    for version in ("9", "10"):
        (repository / "first" / version).mkdir()
        shutil.copy(networks[0], repository / "first" / version)
    store = Registry((repository,))
    store.refresh()
    assert store.get("first").version == "10"


def test_nothing_is_loaded_twice(store: Registry) -> None:
    model = store.get("first")
    assert store.refresh() == []
    assert store.get("first") is model


def test_a_new_version_takes_over(store: Registry, repository: Path, networks: Pair) -> None:
    (repository / "first" / "3").mkdir()
    shutil.copy(networks[0], repository / "first" / "3")
    assert kinds(store.refresh()) == [("loaded", "first", "3")]
    assert store.get("first").version == "3"


def test_a_changed_file_is_swapped(store: Registry, repository: Path, networks: Pair) -> None:
    old = store.get("second")
    replace_file(repository / "second/1/model.gguf", networks[0].read_bytes())
    assert kinds(store.refresh()) == [("replaced", "second", "1")]
    assert store.get("second").sha256 != old.sha256


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "golden"])
def test_a_bad_file_is_reported_and_the_old_one_stays(
    store: Registry, repository: Path, networks: Pair, damage: str
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


def test_a_bad_new_version_does_not_become_the_newest(store: Registry, repository: Path) -> None:
    (repository / "first" / "3").mkdir()
    (repository / "first" / "3" / "model.gguf").write_bytes(b"GGUF, but not really")
    assert kinds(store.refresh()) == [("refused", "first", "3")]
    assert store.get("first").version == "2"
    with pytest.raises(UnknownModelError, match="no version 3"):
        store.get("first", "3")


def test_a_file_overwritten_in_place_does_not_touch_what_serves(store: Registry, repository: Path) -> None:
    from tests.serve.pictures import pixels

    run = store.get("second").run
    before = run(pixels()[None])
    os.truncate(repository / "second/1/model.gguf", 10)
    assert (run(pixels()[None]) == before).all()
    assert (store.get("second").run(pixels()[None]) == before).all()


def test_a_removed_version_goes_after_the_second_look(store: Registry, repository: Path) -> None:
    shutil.rmtree(repository / "first" / "2")
    assert store.refresh() == []
    assert kinds(store.refresh()) == [("removed", "first", "2")]
    assert store.get("first").version == "1"
    shutil.rmtree(repository / "second")
    store.refresh()
    store.refresh()
    assert "second" not in store.table


def test_a_version_that_is_away_for_one_look_goes_on_serving(store: Registry, repository: Path) -> None:
    away = repository / "first" / "away"
    for _ in range(2):
        (repository / "first" / "2").rename(away)
        assert store.refresh() == []
        assert store.get("first").version == "2"
        away.rename(repository / "first" / "2")
        assert store.refresh() == []


def test_a_folder_that_is_away_for_a_moment_changes_nothing(store: Registry, repository: Path) -> None:
    away = repository.with_name("away")
    repository.rename(away)
    with pytest.raises(ServeError, match="no such folder"):
        store.refresh()
    away.rename(repository)
    assert store.refresh() == []
    assert store.get("first").version == "2"


def test_an_unloaded_model_stays_listed_and_frees_its_memory(store: Registry) -> None:
    """Defect 19: an unloaded model vanished from the index, and stayed in memory."""
    model = weakref.ref(store.get("first"))
    store.unloaded = frozenset({"first"})
    assert kinds(store.refresh()) == [("unloaded", "first", v) for v in ("1", "2")]
    gc.collect()
    assert model() is None
    assert [(e.candidate.version, e.state, e.reason) for e in store.table["first"].values()] == [
        ("1", "UNAVAILABLE", "unloaded"),
        ("2", "UNAVAILABLE", "unloaded"),
    ]
    with pytest.raises(UnknownModelError):
        store.get("first")
    assert store.refresh() == []
    store.unloaded = frozenset()
    store.refresh()
    assert store.get("first").version == "2"
    with pytest.raises(UnknownModelError, match="there is no model nobody"):
        store.check_known("nobody")


def test_load_of_a_bad_model_says_why(store: Registry, repository: Path) -> None:
    (repository / "third").mkdir()
    (repository / "third" / "model.gguf").write_bytes(b"nonsense")
    store.refresh(retry=True)
    with pytest.raises(ServeError, match="model third version 1 is refused"):
        store.check_loaded("third")


def test_a_new_model_never_becomes_the_default(repository: Path, networks: Pair) -> None:
    """Defect 14: the default was the first ready model of the alphabet."""
    shutil.rmtree(repository / "second")
    store = Registry((repository,), default=None)
    store.refresh()
    assert store.get().name == "first", "the only one"
    (repository / "aaa").mkdir()
    shutil.copy(networks[0], repository / "aaa" / "model.gguf")
    store.refresh()
    with pytest.raises(ServeError, match="there is no default model; name one of aaa, first"):
        store.get()


@pytest.mark.parametrize("stray", ["birds.gguf", "export/1/model.gguf", "export/model.gguf", "first/stray.gguf"])
def test_a_stray_file_changes_nothing_but_itself(repository: Path, networks: Pair, stray: str, store: Registry) -> None:
    """Defect 10: a file in the root, or a folder called export, made the scan return that alone."""
    (repository / stray).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(networks[0], repository / stray)
    for registry in (store, Registry((repository,))):
        for _ in range(3):
            registry.refresh()
        assert {"first", "second"} <= set(registry.table)
        assert registry.get("first").version == "2"


def test_the_table_is_replaced_in_one_assignment(store: Registry, networks: Pair, repository: Path) -> None:
    """Defect 23: a reader could see the new table with the old list of newest versions."""
    before = store.table
    shutil.rmtree(repository / "first" / "2")
    store.refresh()
    store.refresh()
    assert set(before["first"]) == {"1", "2"}
    assert set(store.table["first"]) == {"1"}
    assert store.get("first").version == "1"


def test_the_default_model_can_be_named(repository: Path) -> None:
    store = Registry((repository,), default="second")
    store.refresh()
    assert store.get().name == "second"


@pytest.mark.parametrize("layout", ["model.gguf", "export/model.gguf", "other.gguf"])
def test_a_single_model_is_found_where_it_lies(tmp_path: Path, networks: Pair, layout: str) -> None:
    path = tmp_path / "digits" / layout
    path.parent.mkdir(parents=True)
    shutil.copy(networks[0], path)
    name = "other" if layout == "other.gguf" else "digits"
    assert [(c.name, c.version, c.path) for c in Root.of(tmp_path / "digits").scan()] == [(name, "1", path)]
    assert Root.of(path).scan()[0].name == name


def test_single_files_are_served_side_by_side(tmp_path: Path, networks: Pair, repository: Path) -> None:
    files = tmp_path / "cats.gguf", tmp_path / "dogs.gguf"
    for file, network in zip(files, networks, strict=True):
        shutil.copy(network, file)
    store = Registry((*files, repository))
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
        scan_all([Root.of(repository), Root.of(tmp_path / "second.gguf")])
    with pytest.raises(ServeError, match="expected one model, got 2"):
        Registry((repository, tmp_path / "second.gguf"), "x")


def test_what_is_no_model_is_passed_over(repository: Path) -> None:
    for name in (".hidden/1", "bad name/1", "first/zero", "first/0", "empty"):
        (repository / name).mkdir(parents=True)
        (repository / name / "model.gguf").write_bytes(b"") if "/" in name else None
    (repository / "README.md").write_text("models")
    assert [(c.name, c.version) for c in Root.of(repository).scan()] == [
        ("first", "1"),
        ("first", "2"),
        ("second", "1"),
    ]
