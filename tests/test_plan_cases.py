"""The page about cases of plans and contexts: as many cases as it says, and each test that it names exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from cases import for_each

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/plan-cases.md").read_text(encoding="utf-8")
TESTS = ROOT / "plugins/deedbook-flow-runcontext/tests"
ROW = re.compile(r"\| [^|]+ \| `(?P<file>[\w/.-]+\.py)::(?:(?P<group>\w+)::)?(?P<test>\w+)(?:\[(?P<id>[^\]]+)\])?` \|")
SECTIONS = {
    title: [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| case |")]
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
ROWS = [row for rows in SECTIONS.values() for row in rows]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True, scope="module")
def trees_of_this_file() -> Iterator[None]:
    """Let the syntax trees go after the last test here: the garbage collector would look at them in all others."""
    yield
    parsed.cache_clear()


def functions(node: ast.Module | ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def list_tests(path: Path, group: str | None) -> set[str]:
    """Return the tests of a file, or of one of its classes with those of the contracts of flows."""
    if group is None:
        return functions(parsed(path))
    (found,) = (each for each in parsed(path).body if isinstance(each, ast.ClassDef) and each.name == group)
    assert [base.id for base in found.bases if isinstance(base, ast.Name)] == ["FlowModesContract"]
    contract = parsed(ROOT / "plugins/deedbook-testing/src/deedbook_testing/modes.py")
    (inherited,) = (each for each in contract.body if isinstance(each, ast.ClassDef) and "Contract" in each.name)
    return functions(found) | functions(inherited)


@for_each("row", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_test_of_a_case_exists(row: str):
    found = ROW.fullmatch(row)
    assert found is not None, row
    path = ROOT / found["file"] if "/" in found["file"] else TESTS / found["file"]
    assert found["test"].startswith("test_")
    assert found["test"] in list_tests(path, found["group"])
    if found["id"]:
        assert f'"{found["id"]}"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("title", "count"), [("Flows with a context", 36), ("Compiler", 12), ("Validation", 23), ("Policy tags", 13)]
)
def test_section_has_as_many_cases_as_its_title_says(title: str, count: int):
    assert len(SECTIONS[f"{title}: {count} cases"]) == count


def test_no_case_is_listed_twice():
    assert len({row.rpartition("| `")[2] for row in ROWS}) == len(ROWS)
    assert len(ROWS) == 84 + len(SECTIONS["The context as the only truth"])
