"""Every rule of every contract holds for the good artifacts, and a small damage of them breaks it."""

from pathlib import Path

import pytest
import yaml
from cases import for_each
from swe_examples import UNITS, schema_examples, variables

from deedbook.format.schema import foreign
from deedbook_flow_swe.rule_language import build_language
from deedbook_policy_standard.signals import Unclear

DAMAGES = yaml.safe_load((Path(__file__).parent / "damages.yaml").read_text())
CASES = [(phase, damage["rule"], damage["set"]) for phase, listed in DAMAGES.items() for damage in listed]
PHASES = tuple(DAMAGES)


@pytest.fixture(scope="module")
def conditions(definition):
    """Return the language of each phase and its compiled conditions by rule."""
    found = {}
    for contract in definition.phases:
        language = build_language(definition, contract)
        found[contract.phase] = (
            language,
            {rule.id: language.compile(rule.cel) for rule in contract.rules if rule.cel is not None},
        )
    return found


def set_value(root, place, value):
    *steps, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    for step in steps:
        root = root[step]
    assert root[last] != value
    root[last] = value


def values_of(definition, contract, seen):
    """Yield the name of the schema of each value in *seen*, and the value."""
    files = [(contract.inputs, "inputs"), (contract.outputs, "outputs")]
    for file, key in ((file, key) for listed, key in files for file in listed):
        value = seen[key][file.name]
        for each in value if file.many else [value]:
            if file.schema in definition.schemas:
                yield file.schema, each
    for rule in contract.rules:
        if rule.command is not None:
            value = seen["checks"][rule.check]
            yield from ((rule.command.schema, each) for each in (value if isinstance(value, list) else [value]))


@pytest.mark.parametrize("phase", PHASES)
def test_good_artifacts_keep_every_rule(definition, conditions, phase):
    language, rules = conditions[phase]
    contract = definition.phase(phase)
    for unit in UNITS if definition.works_units(phase) else UNITS[:1]:
        view = language.view(variables(contract, unit))
        assert [name for name, rule in rules.items() if not rule.holds(view)] == []


@for_each(("phase", "rule", "changes"), CASES, ids=[f"{phase}-{rule}" for phase, rule, _ in CASES])
def test_damage_breaks_the_rule_and_no_schema(definition, conditions, phase, rule, changes):
    contract = definition.phase(phase)
    seen = variables(contract)
    for place, value in changes.items():
        set_value(seen, place, value)
    for name, value in values_of(definition, contract, seen):
        assert not foreign(definition.schemas[name], place=name).violations(value)
    language, rules = conditions[phase]
    assert rules[rule].holds(language.view(seen)) is False


def test_every_rule_has_a_damage(conditions):
    expected = {(phase, rule) for phase, (_, rules) in conditions.items() for rule in rules}
    assert {(phase, rule) for phase, rule, _ in CASES} == expected


def test_large_task_is_judged_and_not_refused_for_its_size(definition, conditions):
    """Twenty units, sixty criteria and two thousand tests: no condition is too much work."""
    contract = definition.phase("verification")
    seen = variables(contract)
    units = [f"unit-{number:03}" for number in range(1, 21)]
    ids = [f"AC-{number:03}" for number in range(1, 61)]
    tests = [{"id": f"tests/test_{number}.py::test_it", "outcome": "passed"} for number in range(2_000)]
    unit, criterion = seen["inputs"]["work_breakdown"]["units"][0], seen["inputs"]["criteria"]["criteria"][0]
    result, review = seen["checks"]["unit_tests"][0], seen["outputs"]["review"]["units"][0]
    verdict = seen["outputs"]["fidelity"]["criteria"][0]
    own = {name: ids[3 * place : 3 * place + 3] for place, name in enumerate(units)}
    seen["inputs"]["criteria"]["criteria"] = [{**criterion, "id": each} for each in ids]
    seen["inputs"]["work_breakdown"]["units"] = [{**unit, "id": each, "criteria": own[each]} for each in units]
    for each, test in zip(seen["inputs"]["work_breakdown"]["units"][:3], tests[-3:], strict=True):
        each["verification"] = {**each["verification"], "rollback_test": test["id"]}
    seen["checks"]["unit_tests"] = [
        {**result, "unit_id": each, "tests": tests[:100], "acceptance_criteria_verified": own[each]} for each in units
    ]
    seen["checks"]["integration_tests"] |= {"tests": tests, "acceptance_criteria_verified": ids}
    seen["outputs"]["fidelity"]["criteria"] = [{**verdict, "id": each} for each in ids]
    seen["outputs"]["review"]["units"] = [{**review, "id": each} for each in units]
    seen["outputs"]["review"]["findings"] = []
    language, rules = conditions["verification"]
    view = language.view(seen)
    for name, rule in rules.items():
        try:
            assert rule.holds(view), name
        except Unclear as problem:
            pytest.fail(f"{name}: {problem}")


def test_every_schema_takes_its_example_and_refuses_less_or_more(definition):
    seen = set()
    for name, value in schema_examples(definition):
        seen.add(name)
        validator = foreign(definition.schemas[name], place=name)
        assert not validator.violations(value)
        assert validator.violations({**value, "more": 1})
        for key in definition.schemas[name]["required"]:
            assert validator.violations({other: each for other, each in value.items() if other != key})
    assert seen == set(definition.schemas)
