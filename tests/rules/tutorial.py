"""Runs the pages that teach by doing: writes their files, runs their commands, compares what is printed.

``python tests/rules/tutorial.py docs/new-loader.md`` writes what is printed now into the page.

A block is preceded by ``<!-- file: NAME -->`` (its content is written), or begins ``$ `` (its commands are run).
A printed line ``...`` stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_BLOCK = re.compile(r"(?:<!-- file: (?P<name>\S+) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```", re.DOTALL)


def steps(text: str) -> list[re.Match[str]]:
    """Every block of a page that is a file or a session, in order."""
    return [m for m in _BLOCK.finditer(text) if m["name"] or m["body"].startswith("$ ")]


def commands(body: str) -> list[tuple[str, str]]:
    """Split a session into commands and what each prints; a command goes on after a backslash."""
    out: list[tuple[str, str]] = []
    goes_on = False
    for line in body.split("\n")[:-1]:
        if line.startswith("$ "):
            out.append((line[2:], ""))
        elif goes_on:
            out[-1] = (out[-1][0] + "\n" + line, "")
        else:
            out[-1] = (out[-1][0], out[-1][1] + line + "\n")
            continue
        goes_on = line.endswith("\\")
    return out


def run(command: str, folder: Path) -> str:
    """Run one command in a folder; return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "BITLANE_CACHE": str(folder / ".cache"), "COLUMNS": "100"}
    environment.pop("BITLANE_RULES", None)
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return re.sub(r"[ \t]+\n", "\n", done.stdout + done.stderr)


def agrees(told: str, printed: str) -> bool:
    """Whether a page tells what is printed; a line `...` stands for any lines."""
    parts = [re.escape(p) for p in re.split(r"^\.\.\.\n", told, flags=re.MULTILINE)]
    return re.fullmatch("(?:.*\n)*?".join(parts), printed) is not None


def play(page: Path, update: bool = False) -> list[str]:
    """Do everything that a page says, in an empty folder; return what it tells wrongly."""
    text = page.read_text(encoding="utf-8")
    wrong: list[str] = []
    out: list[str] = []
    last = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for step in steps(text):
            out.append(text[last : step.start("body")])
            last = step.end("body")
            if step["name"]:
                target = folder / step["name"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(step["body"], encoding="utf-8")
                out.append(step["body"])
                continue
            for command, told in commands(step["body"]):
                printed = run(command, folder)
                if not agrees(told, printed):
                    wrong.append(f"$ {command}\n--- told\n{told}--- printed\n{printed}")
                kept = told if agrees(told, printed) else printed
                out.append(f"$ {command}\n{kept}")
    if update:
        page.write_text("".join([*out, text[last:]]), encoding="utf-8")
    return wrong


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for problem in play(Path(argument), update=True):
            print(problem)
