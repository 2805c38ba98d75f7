"""The rules of a contract: schemas of files, conditions in CEL, and commands that the runner calls; pure.

The commands themselves are called by `phase_run`. Here their arguments are filled in, and their results are judged.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook import Json, Object
from deedbook.format.schema import Schemas, Validator, data_folder, foreign
from deedbook_flow_swe.contract import EACH_UNIT, OWN, Command, Contract, Rule
from deedbook_flow_swe.definition import SHIPPED, Definition
from deedbook_flow_swe.rule_language import build_language
from deedbook_policy_standard.signals import Signal, Unclear

from .blocks import Block

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_FINDINGS: Final = "findings"
_OUTPUT: Final = re.compile(r"\boutputs\.(\w+)")


@attrs.frozen(kw_only=True)
class RuleValues:
    """What conditions see: see `rule_language`."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    checks: Mapping[str, Any]
    task: Object
    unit: Object | None

    def as_variables(self) -> dict[str, Any]:
        """Return the variables by name."""
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "checks": self.checks,
            "task": self.task,
            "unit": self.unit,
        }


class RuleBook:
    """The compiled rules of one *contract* of *definition*."""

    def __init__(self, definition: Definition, contract: Contract) -> None:
        self._definition, self._contract = definition, contract
        self._language = build_language(definition, contract)
        self._signals: dict[str, Signal] = {
            rule.id: self._language.compile(rule.cel) for rule in contract.rules if rule.cel is not None
        }
        self._schemas: dict[str, Validator] = {}

    def find_violation(self, schema: str | None, value: Json) -> str:
        """Return the first violation of *schema* by *value*, with its place in it; empty if there is none."""
        if schema is None:
            return ""
        found = self._validator(schema).violations(value)
        return f"{found[0].path}: {found[0].message}" if found else ""

    def find_broken(self, values: RuleValues, unit: str | None) -> Block | None:
        """Return the block by the first broken rule; ``None`` if all hold."""
        view = self._language.view(values.as_variables())
        for rule in self._contract.rules:
            reason = self._break(rule, values) or self._deny(rule, view)
            if reason:
                return self._block(rule, reason, values, unit)
        return None

    # --- parts --------------------------------------------------------------------------------------------------------

    def _break(self, rule: Rule, values: RuleValues) -> str:
        """Return how a rule with a schema is broken."""
        if rule.schema is None or rule.output is None:
            return ""
        value = values.outputs.get(rule.output)
        for each in value if isinstance(value, list) else [value]:
            violation = self.find_violation(rule.schema, each)
            if violation:
                return f"{rule.output} does not fit {rule.schema}: {violation}"
        return ""

    def _deny(self, rule: Rule, view: Any) -> str:
        """Return how a rule with a condition is broken; a condition without an answer is broken."""
        signal = self._signals.get(rule.id)
        if signal is None:
            return ""
        try:
            return "" if signal.holds(view) else f"does not hold: {rule.message}"
        except Unclear as problem:
            return f"cannot be judged: {rule.message}: {problem}"

    def _block(self, rule: Rule, reason: str, values: RuleValues, unit: str | None) -> Block:
        """Return the block; a finding of the pipeline's highest severity in an output names rule, place and unit."""
        finding = self._find_blocker(values.outputs) if rule.severity in self._top else None
        if finding is not None and rule.command is None:
            place, about = str(finding.get("place", "")), finding.get("unit", unit)
            what = finding.get("rule") or finding.get("id") or rule.id
            text = finding.get("problem") or finding.get("message") or finding.get("title") or ""
            return Block(
                by="rule", rule=str(what), place=place or None, severity=finding["severity"],
                reason=f"{reason.rstrip('.')}: {what} at {place}{f': {text}' if text else ''}", unit=about,
            )  # fmt: skip
        failed = _failed_unit(values.checks.get(rule.check)) if rule.command is not None else None
        file = rule.command.writes.rpartition("/")[2] if rule.command else rule.output or _named_output(rule)
        return Block(
            by="rule", rule=rule.id, place=failed or file, severity=rule.severity, reason=reason, unit=failed or unit,
            own=rule.mends == OWN,
        )  # fmt: skip

    @property
    def _top(self) -> frozenset[str]:
        return frozenset(next(iter(self._definition.severities.values()), ()))

    def _find_blocker(self, outputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the first finding of the highest severity in the outputs."""
        for output in outputs.values():
            for value in output if isinstance(output, list) else [output]:
                rows = value.get(_FINDINGS, ()) if isinstance(value, dict) else ()
                for row in rows if isinstance(rows, list) else ():
                    if isinstance(row, dict) and row.get("severity") in self._top:
                        return row
        return None

    def _validator(self, schema: str) -> Validator:
        if schema not in self._schemas:
            known = self._definition.schemas
            if schema in known:
                self._schemas[schema] = foreign(known[schema], place=f"schema {schema}")
            elif schema in SHIPPED:
                self._schemas[schema] = Schemas.load(data_folder("schemas")).validator(schema)
            else:
                raise KeyError(schema)
        return self._schemas[schema]


def _named_output(rule: Rule) -> str | None:
    """Return the first output that the condition of *rule* names."""
    found = _OUTPUT.search(rule.cel or "")
    return found[1] if found else None


def _failed_unit(results: Any) -> str | None:
    """Return the unit of the first result in a list that failed."""
    for each in results if isinstance(results, list) else ():
        if (
            isinstance(each, dict)
            and isinstance(each.get("unit_id"), str)
            and (each.get("exit_code") or each.get("failed") or each.get("threshold_met") is False)
        ):
            return str(each["unit_id"])
    return None


# --- the arguments of commands ----------------------------------------------------------------------------------------


def fill_arguments(command: Command, values: Mapping[str, Json], unit: Object | None) -> Any:
    """Return the arguments of one call of *command*; a text that is only a placeholder becomes its value as it is.

    Raises `ValueError` for a placeholder without a value.
    """
    known = {**values, **{f"unit.{key}": value for key, value in _flatten(unit or {}).items()}}
    return _fill(dict(command.args), known)


def _flatten(value: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, each in value.items():
        flat[f"{before}{key}"] = each
        if isinstance(each, Mapping):
            flat |= _flatten(each, f"{before}{key}.")
    return flat


def _fill(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill(each, known) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_fill(each, known) for each in value]
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    if whole:
        return _value_of(whole[1], known)
    return _PLACEHOLDER.sub(lambda found: str(_value_of(found[1], known)), value)


def _value_of(name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise ValueError(f"there is no value for {{{name}}}; values: {', '.join(sorted(known))}")
    return known[name]


def units_of(rule: Rule, units: Sequence[Object]) -> Sequence[Object | None]:
    """Return the units for which the command of *rule* is called; one ``None`` where it is called for the task."""
    assert rule.command is not None
    return units if rule.command.each == EACH_UNIT else (None,)
