"""Runs the commands of a Markdown page and compares what they print with what the page shows.

In a console block `…` stands for what was left out: alone on a line for any lines, else for the rest of its line. Ids,
hashes and times may differ. An id that a block prints is the id that later commands mean.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import attrs

_MASKS: Final = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"charter [0-9a-f]{12}\b"), "charter <hash>"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"), "<time>"),
    (re.compile(r"\b[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}\b"), "<time>"),
)


@attrs.frozen
class Block:
    """A fenced block: its language, and its text."""

    language: str
    text: str

    @property
    def first(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0]


def find_blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text, in order."""
    return [Block(*found) for found in re.findall(r"^```([a-z]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return find_blocks(page.read_text(encoding="utf-8"))


def steps(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the output shown for it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


class Shell:
    """Runs the commands of a page in *folder*, one after the other, with this Python's `deedbook`.

    *programs* is a folder with programs that are found before those beside this Python.
    """

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.folder = folder
        self.meant: dict[str, str] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOOK_", "PYTHON"))}
        places = [*([str(programs)] if programs else []), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.env = {**kept, "PATH": ":".join(places), "LC_ALL": "C.UTF-8"}
        self.env["XDG_CONFIG_HOME"] = str(folder.with_name(f"{folder.name}-config"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        """End what a page has started and did not come to end itself; after its end the ids may be others'."""
        for place in self.folder.glob("*.pid") if failed else ():
            with suppress(ProcessLookupError):
                os.kill(int(place.read_text(encoding="utf-8")), signal.SIGTERM)

    def check(self, block: Block) -> None:
        """Run each command of a console block; raises `AssertionError` if one prints something else."""
        for command, shown in steps(block):
            self.run(command, shown)

    def run(self, command: str, shown: Sequence[str]) -> None:
        """Run one command; ``NAME=$(command)`` sets a variable for the commands after it."""
        if assigned := re.fullmatch(r"([A-Z]+)=\$\((.*)\)", command):
            name, command = assigned.groups()
            self.env[name] = self._bash(command, check=True).strip()
            return
        command = re.sub(r".*\.venv/bin/(?=deedbook)", "", command)
        for written, real in self.meant.items():
            command = re.sub(rf"\b{written[:4]}[0-9a-f]*\b", real, command)
        said = self._bash(f"exec 2>&1; {command}", check=False).replace(self.env["XDG_CONFIG_HOME"], ".config")
        found = "".join(f"{_mask(line)}\n" for line in said.splitlines())
        if not re.fullmatch(_as_pattern(shown), found):
            raise AssertionError(f"$ {command}\n{said}")
        ids = [re.findall(r"^session ([0-9a-f]{32})$", text, re.MULTILINE) for text in ("\n".join(shown), said)]
        self.meant |= dict(zip(*ids, strict=False))

    def _bash(self, command: str, *, check: bool) -> str:
        argv = ["bash", "-c", command]
        return subprocess.run(  # noqa: S603 - the commands are those of the page
            argv, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, timeout=180, check=check
        ).stdout.decode()


def _mask(line: str) -> str:
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return line.rstrip()


def _as_pattern(shown: Iterable[str]) -> str:
    """Return the regular expression for what a console block shows."""
    parts = []
    for line in shown:
        if line == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(re.escape(_mask(line.removesuffix("…"))) + (".*" if line.endswith("…") else "") + r"\n")
    return "".join(parts)
