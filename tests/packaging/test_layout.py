"""The wheel's lists follow the tree, and no committed text names the machine it was written on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
SETUPTOOLS: dict[str, Any] = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]
OUTSIDE = {"tests", "docs", "editors", "benchmarks", "build", "dist"}
# Spelled in pieces, so that this file does not find itself.
FOLDERS = ["wo" + "rk", "ro" + "ot", "tmp" + "/v", r"home/\w+", r"Users/\w+"]
MACHINE = re.compile(
    rf"(?<![\w.$}}~-])/(?:{'|'.join(FOLDERS)})(?:/|\b)(?!-)" + r"|\bpypi\." + r"org\b|\bpython" + r"hosted\b"
)
# Shipped as found, or legal text.
VERBATIM = re.compile(
    r"^(LICENSE|perf_data/(LICENSE|README\.md|sources\.json|systems\.yaml|derive\.py)|model_configs/.*--.*)"
)


def package_name(folder: Path, root: Path) -> str:
    return ".".join(["bitlane", *folder.relative_to(root).parts])


def committed(root: Path) -> list[Path]:
    """Files of the checkout that git tracks or would track; everything but caches where there is no git."""
    if (root / ".git").exists():
        command = [
            "git",
            "-c",
            f"safe.directory={root}",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        return [root / name for name in listed if name and (root / name).is_file()]
    left_out = re.compile(r"(^|/)(\.venv|\.git|build|dist|__pycache__|[^/]*\.egg-info|\.[^/]*_cache)/")
    walked = (p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
    return [p for p in walked if not left_out.search(p.relative_to(root).as_posix())]


def inside_package(root: Path) -> Iterator[Path]:
    for path in committed(root):
        parts = path.relative_to(root).parts
        if len(parts) > 1 and parts[0] not in OUTSIDE and not parts[0].startswith("."):
            yield path


def test_every_package_folder_is_listed(repo_root: Path) -> None:
    found = {package_name(p.parent, repo_root) for p in inside_package(repo_root) if p.name == "__init__.py"}
    assert found | {"bitlane"} == set(SETUPTOOLS["packages"])


def test_every_data_file_is_package_data(repo_root: Path) -> None:
    covered = {
        path
        for package, globs in SETUPTOOLS["package-data"].items()
        for pattern in globs
        for path in repo_root.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    left = [str(p.relative_to(repo_root)) for p in inside_package(repo_root) if p.suffix != ".py" and p not in covered]
    assert left == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /" + "work/shared/x", True),
        ("/" + "root/.cache", True),
        ("/" + "home/someone/x", True),
        ("https://example.invalid/" + "work/x", False),
        ("a frame" + "work/and rest", False),
        ("from ../shared", False),
    ],
)
def test_the_machine_pattern_can_find(text: str, found: bool) -> None:
    assert bool(MACHINE.search(text)) is found


def test_no_committed_text_names_a_machine(repo_root: Path) -> None:
    hits = []
    for path in committed(repo_root):
        name = path.relative_to(repo_root).as_posix()
        content = path.read_bytes()
        if VERBATIM.match(name) or b"\0" in content[:8192]:
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if match := MACHINE.search(line):
                hits.append(f"{name}:{number}: {match[0]}")
    assert hits == []
