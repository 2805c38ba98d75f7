"""What is printed for the mistakes that people make first: one line, the place, and what to do."""

import os
import subprocess
import sys

import pytest
from commandline import Place

HEAD = "schema_version: v1\n"
ECHO = "abilities:\n  echo: {summary: Echo a text back., handler: {tool: echo}}\n"
RULE = "policies:\n  one:\n    kind: rules\n    rules:\n      - {match: {args: {text: {equals: a}}}, then: allow}\n"
AS_NOBODY = """
import importlib, os, sys
from deedbook.cli import program as cli
from deedbook.charter import compiler
from deedbook.plugins.plugins import discover
for name in ("deedbook.cli.call", "deedbook.cli.execution", "deedbook_author.commands.abilities",
             "deedbook_author.commands.init", "deedbook_author.starter"):
    importlib.import_module(name)
import deedbook_tool_standard.echo
import decimal, graphlib, json, jsonschema_rs, pathlib, sysconfig, uuid
discover()
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
sys.argv = ["deedbook", *sys.argv[2:]]
sys.exit(cli._status(cli.GlobalOptions()))
"""
"""Root may read and write everything, so everything is imported first and root's rights are given up then."""


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.write(".system/deedbook.yaml", HEAD + ECHO)
    return made


def as_nobody(place, *args):
    for folder in [place.path, *place.path.parents][:4]:
        folder.chmod(folder.stat().st_mode | 0o055)
    command = [sys.executable, "-c", AS_NOBODY, str(place.path), *args]
    env = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


WRONG = {
    "tab": (f"{HEAD}abilities:\n\techo: {{}}\n", ":3:1: not YAML: a tab; YAML is indented with spaces"),
    "no version": (ECHO, 'the key "schema_version" is missing; write schema_version: v1'),
    "pointer without a slash": (HEAD + ECHO + RULE, '"text" is no JSON pointer, which begins with a slash: /name'),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_mistake_in_yaml_is_one_line_that_says_what_to_write(place, wrong):
    text, words = WRONG[wrong]
    place.write(".system/deedbook.yaml", text)
    (line,) = place.here("abilities" if wrong != "pointer without a slash" else "lock", status=1).err.splitlines()
    assert words in line


def test_arguments_that_do_not_fit_lead_to_where_the_schema_is_declared(place):
    ran = place.here("call", "echo", "--args", "{}", status=1)
    assert "what the ability takes: .system/deedbook.yaml:3; deedbook abilities show echo" in ran.err


def test_unreadable_system_folder_is_one_fault(place):
    (place.path / ".system").chmod(0)
    ran = as_nobody(place, "abilities")
    (place.path / ".system").chmod(0o755)
    (line,) = ran.stderr.splitlines()
    assert (ran.returncode, ".system: cannot be read: Permission denied; let the user" in line) == (1, True)


@pytest.mark.parametrize("kind", ["absent", "of somebody else"])
def test_state_folder_that_cannot_be_written_is_named_with_what_to_do(place, kind):
    if kind == "absent":
        place.path.chmod(0o555)
    else:
        (place.path / ".deedbook").mkdir(mode=0)
    ran = as_nobody(place, "call", "echo", "--args", '{"text": "hi"}')
    place.path.chmod(0o755)
    (line,) = ran.stderr.splitlines()
    assert (ran.returncode, "[STATE_REFUSED]" in line, "set state: in .system/deedbook.yaml" in line) == (1, True, True)


def test_folder_that_cannot_be_written_begins_no_workspace(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    ran = as_nobody(Place(folder), "init")
    folder.chmod(0o755)
    assert (ran.returncode, "cannot be written: Permission denied" in ran.stderr) == (1, True)
