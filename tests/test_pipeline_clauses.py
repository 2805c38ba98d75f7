"""The page about clauses of the phase pipeline: each test that it names exists, and each clause has a number."""

import re
from collections import Counter

import yaml
from cases import for_each
from test_workflow_clauses import ROOT, ROW, list_tests

PAGE = (ROOT / "docs/pipeline-clauses.md").read_text(encoding="utf-8")
TESTS = ROOT / "plugins/deedbook-pack-swe/tests"
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| clause |")]
OPEN = re.compile(r"\| [^|]+ \| not yet \|")
DAMAGE = "test_damage_breaks_the_rule_and_no_schema"


def damage_ids():
    """Return the ids of the damages as pytest makes them: a number follows where a rule has several."""
    damages = yaml.safe_load((TESTS / "damages.yaml").read_text())
    names = [f"{phase}-{each['rule']}" for phase, listed in damages.items() for each in listed]
    counts, seen = Counter(names), Counter()
    for name in names:
        yield name if counts[name] == 1 else f"{name}{seen[name]}"
        seen[name] += 1


@for_each("row", [row for row in ROWS if not OPEN.fullmatch(row)])
def test_test_of_a_clause_exists(row):
    found = ROW.fullmatch(row)
    assert found is not None, row
    tests = list_tests(ROOT / found["file"] if "/" in found["file"] else TESTS / found["file"])
    assert found["test"] in tests
    if found["test"] == DAMAGE:
        assert found["case"] in set(damage_ids())
    elif found["case"]:
        assert f'"{found["case"]}"' in tests[found["test"]]


def test_clauses_are_numbered():
    numbers = [re.match(r"\| (\d+)\. ", row) for row in ROWS]
    assert [number and int(number[1]) for number in numbers] == list(range(1, len(ROWS) + 1))
