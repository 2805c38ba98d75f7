"""The page about clauses of workflows: each test that it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

from cases import for_each

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/workflow-clauses.md").read_text(encoding="utf-8")
TESTS = ROOT / "plugins/deedbook-flow-workflow/tests"
ROW = re.compile(r"\| (?P<clause>[^|]+) \| `(?P<file>[\w/.-]+\.py)::(?P<test>test_\w+)(?:\[(?P<case>[^\]]+)\])?` \|")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| clause |")]


@cache
def list_tests(path: Path) -> dict[str, str]:
    """Return the tests of a file: the text of what decorates each, with that of the tables that it names."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    tables = {
        target.id: ast.get_source_segment(source, each) or ""
        for each in tree.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    found = {}
    for each in tree.body:
        if isinstance(each, ast.FunctionDef):
            above = " ".join(ast.get_source_segment(source, mark) or "" for mark in each.decorator_list)
            found[each.name] = above + "".join(text for name, text in tables.items() if name in above)
    return found


@for_each("row", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_test_of_a_clause_exists(row: str):
    found = ROW.fullmatch(row)
    assert found is not None, row
    path = ROOT / found["file"] if "/" in found["file"] else TESTS / found["file"]
    tests = list_tests(path)
    assert found["test"] in tests
    if found["case"]:
        assert f'"{found["case"]}"' in tests[found["test"]]


def test_no_clause_is_listed_twice():
    clauses = [found["clause"] for found in map(ROW.fullmatch, ROWS) if found]
    assert len(set(clauses)) == len(clauses) == len(ROWS) > 60
