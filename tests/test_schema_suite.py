"""The official JSON-Schema-Test-Suite, draft 2020-12: each case right or refused by the lint, never wrong."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deedbook.format import canonical, schema
from deedbook.format.errors import IntakeError, SchemaError

HERE = Path(__file__).parent
SUITE = HERE / "vectors" / "json-schema-test-suite" / "draft2020-12"
PAGE = HERE.parent / "docs" / "schemas.md"
SETS = {"required": SUITE, "optional": SUITE / "optional", "formats, asserted": SUITE / "optional" / "format"}
EVERY_TYPE = ["null", "boolean", "object", "array", "number", "string"]


def groups(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each group of cases in a set with the name of its file."""
    for file in sorted(SETS[name].glob("*.json")):
        for group in json.loads(file.read_text("utf-8")):
            yield file.stem, group


def schema_of(name: str, group: dict[str, Any]) -> Any:
    """Return the group's schema; those for formats get the ``type`` that the lint wants beside a format."""
    bare = group["schema"]
    return {"type": EVERY_TYPE, **bare} if name.startswith("formats") and isinstance(bare, dict) else bare


def is_recordable(value: Any) -> bool:
    """Say whether the intake lets a value pass; the suite has integers of any size."""
    try:
        canonical.encode(value)
    except IntakeError:
        return False
    return True


def judge(name: str, group: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield for each case what became of it: right, refused or wrong, with its description."""
    try:
        validator = schema.foreign(schema_of(name, group), place="suite")
    except SchemaError:
        yield from (("refused", case["description"]) for case in group["tests"])
        return
    for case in group["tests"]:
        right = validator.valid(case["data"]) is case["valid"]
        if right and is_recordable(case["data"]):
            right = (validator.violations(case["data"]) == ()) is case["valid"]
        yield "right" if right else "wrong", f"{group['description']}: {case['description']}"


@pytest.mark.parametrize("name", SETS)
def test_no_case_of_the_suite_is_answered_wrongly(name: str) -> None:
    wrong = [f"{file}: {case}" for file, group in groups(name) for fate, case in judge(name, group) if fate == "wrong"]
    assert wrong == []


@pytest.mark.parametrize("name", SETS)
def test_score_of_the_suite_is_the_one_that_is_published(name: str) -> None:
    score = Counter(fate for _, group in groups(name) for fate, _ in judge(name, group))
    row = f"| {name} | {score.total():,} | {score['right']:,} | {score['refused']:,} | {score['wrong']:,} |"
    assert row in PAGE.read_text("utf-8").splitlines()


def test_refusals_of_required_cases_are_those_that_are_explained() -> None:
    fates = {(file, fate) for file, group in groups("required") for fate, _ in judge("required", group)}
    refused = sorted(file for file, fate in fates if fate == "refused")
    explained = [line.split("`")[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert refused == explained


def test_every_keyword_of_the_draft_is_answered_at_least_once() -> None:
    answered = {file for file, group in groups("required") for fate, _ in judge("required", group) if fate == "right"}
    files = {file for file, _ in groups("required")}
    assert files - answered == {"defs", "format", "refRemote", "vocabulary"}


def test_format_cases_are_refused_only_for_the_missing_type() -> None:
    for _, group in (pair for pair in groups("required") if pair[0] == "format"):
        (found,) = schema.lint(group["schema"])
        assert 'needs "type": "string" beside it' in found.message
