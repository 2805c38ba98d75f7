"""Check the rules of a contract: what each names, and its condition in CEL against the schemas of the values."""

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from deedbook import Object
from deedbook.format.errors import DomainError, fault
from deedbook.format.schema import suggest
from deedbook_flow_swe.contract import EACH_UNIT, Contract
from deedbook_flow_swe.rule_language import rule_variables
from deedbook_flow_workflow.registry.signal_check import check_condition
from deedbook_policy_standard.signals import SignalLanguage

from .files import PipelineFile

RULES: Final = "validation_rules"
_HINT: Final = "a condition in CEL, such as outputs.spec.open_questions.size() == 0"


class RuleCheck:
    """Checks the rules of one contract; *schemas* are those that its files have, *unit* is that of a unit."""

    def __init__(
        self, file: PipelineFile, contract: Contract, schemas: Mapping[str, Object], unit: Object | None
    ) -> None:
        self._file = file
        self._contract = contract
        self._schemas = schemas
        self._unit = unit

    def check(self, severities: Container[str], *, has_units: bool) -> Iterator[DomainError]:
        """Yield what is wrong; *has_units*: units are listed when the phase begins."""
        outputs = [each.name for each in self._contract.outputs]
        for index, said in enumerate(self._file.front.get(RULES, ())):
            yield from self._check_form(said, index)
            if "severity" in said and said["severity"] not in severities:
                yield self._fault(f"severity: {said['severity']} is no severity of the pipeline", index, "severity")
            if "output" in said and said["output"] not in outputs:
                why = f"output: the phase gives no {said['output']}{suggest(said['output'], outputs)}"
                yield self._fault(f"{why}; it gives {', '.join(outputs)}", index, "output")
            if said.get("command", {}).get("each") == EACH_UNIT and not has_units:
                why = "each: unit, but no unit is listed when the phase begins; leave it out"
                yield self._fault(why, index, "command", "each")
            if "cel" in said:
                yield from check_condition(self._file.document, (RULES, index, "cel"), self._find_language, _HINT)

    def _check_form(self, said: Mapping[str, Any], index: int) -> Iterator[DomainError]:
        kinds = [key for key in ("schema", "command", "cel") if key in said]
        if kinds not in (["schema"], ["command"], ["cel"], ["command", "cel"]):
            found = " and ".join(kinds) or "none"
            why = f"the rule {said['id']} has {found} of schema, cel and command; a rule has one"
            yield self._fault(f"{why}, and a command may have a cel over its result", index)
        if ("schema" in said) != ("output" in said):
            yield self._fault(f"the rule {said['id']} needs both schema and output", index)

    def _find_language(self) -> SignalLanguage:
        return self._language

    @cached_property
    def _language(self) -> SignalLanguage:
        return SignalLanguage(rule_variables(self._contract, self._schemas, self._unit))

    def _fault(self, why: str, *keys: str | int) -> DomainError:
        return fault("SOURCE_INVALID", why, place=self._file.place(RULES, *keys))
