"""The projects in examples/: each is copied and its page's commands are run; its files are as the page shows them."""

import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, ignore_patterns, which

import packing
import pytest
from cases import for_each
from commandline import ROOT, SCHEMAS
from test_docs import shell_in

from deedbook_audit.verify import verify_file
from deedbook_testing.pages import Shell, blocks, steps

EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/README.md"))
PLAYED = [path for path in EXAMPLES if path.name != "swe"]
"""Those that are run here; `test_example_swe` runs the other one."""
Check = Callable[[Shell, str], None]
NEEDS = {"fix-a-bug": "node", "mcp-git": "mcp-server-git", "review-diff": "bandit"}
"""Examples that start a program: where it does not stand beside this Python, they are not run."""


@pytest.mark.parametrize("example", PLAYED, ids=lambda path: path.name)
def test_example_does_what_its_page_shows(
    example: Path, tmp_path: Path, check_guarantees: Callable[[Shell, str], None]
):
    program = NEEDS.get(example.name)
    if program and not which(program, path=shell_in(tmp_path).env["PATH"]):
        pytest.skip(f"{program} is not installed")
    project, site = tmp_path / "project", tmp_path / "site"
    copytree(example, project, ignore=ignore_patterns(".deedbook", "__pycache__", "*.lock", ".pytest_cache"))
    site.mkdir()
    commands = [step for block in blocks(example / "README.md") if block.language == "console" for step in steps(block)]
    assert len(commands) >= 3
    with shell_in(project) as shell:
        shell.env |= {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        for command, shown in commands:
            place = re.fullmatch(r"pip install -q \./(\S+)", command)
            if place:
                built = project / place[1]
                packing.unpack(built if built.suffix == ".whl" else packing.wheel(built), site, upgrade=True)
            else:
                shell.run(command, shown)
        check_guarantees(shell, f"examples/{example.name}")
    ledgers = list(project.glob(".deedbook/*/**/.events.jsonl"))
    assert len(ledgers) > 1
    assert all(verify_file(path, schemas=SCHEMAS).sound for path in ledgers)


@for_each("example", EXAMPLES, ids=lambda path: path.name)
def test_example_shows_its_files_as_they_are(example: Path):
    shown = [block for block in blocks(example / "README.md") if block.language in ("python", "yaml", "toml")]
    for block in shown:
        path = re.fullmatch(r"# (\S+)", block.first)
        assert path, block.first
        assert (example / path[1]).read_text(encoding="utf-8") == block.text.partition("\n")[2]


def test_index_of_examples_lists_each():
    listed = re.findall(r"\]\(([a-z-]+)/README\.md\)", (ROOT / "examples/README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.name for path in EXAMPLES]


def test_smallest_tool_of_the_examples_fits_a_screen():
    source = (ROOT / "examples/own-tool/deedbook-tool-slug/deedbook_tool_slug.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 30
