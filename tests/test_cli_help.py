"""The help of every command: whole sentences, and nothing that only a checkout of the project has."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from deedbook.cli.program import program

ROOT = Path(__file__).parents[1]
SOURCES = [*ROOT.glob("core/deedbook/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
PAGE = re.compile(r"docs/[\w-]+\.md")


def walk(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, click.Context]]:
    """Yield every command below *command* by its path, with a context 80 columns wide."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80, obj=None)
    yield context.command_path, context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None, each
            yield from walk(found, each, context)


@cache
def commands() -> dict[str, click.Context]:
    return dict(walk(program, "deedbook"))


def test_every_command_is_walked():
    assert {"deedbook call", "deedbook ledger amend", "deedbook bridge install", "deedbook mcp add"} <= {*commands()}


def listed(context: click.Context) -> list[str]:
    """Return the lines of a group's lists of commands."""
    formatter = context.make_formatter()
    assert isinstance(context.command, click.Group)
    context.command.format_commands(context, formatter)
    return formatter.getvalue().splitlines()


def test_list_of_commands_cuts_no_text():
    groups = [context for context in commands().values() if isinstance(context.command, click.Group)]
    cut = [f"{each.command_path}: {line}" for each in groups for line in listed(each) if line.endswith(("...", "…"))]
    assert cut == []


def test_list_of_subcommands_has_one_line_for_each():
    groups = [each for each in commands().values() if isinstance(each.command, click.Group) and each.parent]
    folded = [f"{each.command_path}: {line}" for each in groups for line in listed(each) if line.startswith("   ")]
    assert groups
    assert folded == []


def test_help_names_no_page_of_the_checkout():
    assert [path for path, context in commands().items() if PAGE.search(context.command.get_help(context))] == []


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings of a module that are no docstrings."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


@pytest.mark.parametrize("text", ['x = f"see docs/a.md, {1}"', 'def f():\n    return "docs/a.md"'])
def test_page_in_a_message_is_found(text: str):
    assert [bool(PAGE.search(str(node.value))) for node in literals(ast.parse(text))].count(True) == 1


def test_no_message_names_a_page_of_the_checkout():
    """Whoever installed wheels does not have the pages: a message says the thing itself, or names a command."""
    named = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in SOURCES
        if PAGE.search(source := path.read_text(encoding="utf-8"))
        for node in literals(ast.parse(source))
        if PAGE.search(str(node.value))
    ]
    assert named == []
