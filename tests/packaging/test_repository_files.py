"""Files for people and services around the code: workflows, citation, issue templates, version numbers, pins."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {
    "vendor.github-workflows": (".github/workflows/*.yml",),
    "vendor.github-issue-forms": (".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/refused.yml"),
    "vendor.github-issue-config": (".github/ISSUE_TEMPLATE/config.yml",),
    "vendor.dependabot": (".github/dependabot.yml",),
    "vendor.citation-file-format": ("CITATION.cff",),
    "vendor.compose-spec": ("compose.yaml",),
}


def tool(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment."""
    command = [str(Path(sys.executable).with_name(name)), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_file_follows_its_schema(schema: str) -> None:
    files = [path for pattern in SCHEMAS[schema] for path in ROOT.glob(pattern)]
    assert files
    done = tool("check-jsonschema", "--builtin-schema", schema, "--default-filetype", "yaml", *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_pass_their_audit() -> None:
    done = tool("zizmor", "--offline", "--no-progress", ".github")
    assert done.returncode == 0, done.stdout + done.stderr


def test_continuous_integration_runs_the_command_of_developers() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert ".ci/run" in [step.get("run") for job in jobs.values() for step in job["steps"]]


def test_hooks_call_the_tools_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = re.search(r"^lint:.*?\n\n", (ROOT / "Makefile").read_text(), flags=re.M | re.S)
    assert lint is not None
    for hook in hooks:
        program, *rest = hook["entry"].removeprefix(".venv/bin/").split()
        assert f"$(BIN)/{program}" in lint[0], hook["id"]
        assert all(word in lint[0] for word in rest if not word.startswith("-")), hook["id"]


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (ROOT / "runtime/VERSION").read_text().strip() == version
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == version
    assert f"## {version} (" in (ROOT / "CHANGELOG.md").read_text()


def pins() -> dict[str, str]:
    """Every package of constraints.txt with its version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==\S+", line) for line in lines), "exact pins only"
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def closure(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> None:
    """Add every installed distribution that `name[extras]` asks for, with what those ask for in turn."""
    for extra in extras or {""}:
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                closure(canonicalize_name(requirement.name), frozenset({"", *requirement.extras}), seen)


def test_every_package_of_the_environment_is_pinned() -> None:
    """`make constraints` writes the pins; here no package of bitedge[dev] may be without one."""
    pinned = pins()
    held = (ROOT / "constraints.in").read_text()
    assert f"torch=={pinned['torch']} " in held
    seen: set[tuple[str, str]] = set()
    closure("bitedge", frozenset({"dev"}), seen)
    names = {name for name, _ in seen} - {"bitedge"}
    assert len(names) > 100
    assert sorted(names - pinned.keys()) == [], "run make constraints"
