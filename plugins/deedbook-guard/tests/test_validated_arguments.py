"""Arguments that a framework validated: their form, the copies that a tool gets, and a change after the decision."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasPath,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from deedbook.format.reader import read
from deedbook_guard import CallDenied, guard
from deedbook_guard.arguments import (
    CHANGED,
    argument_form,
    is_judged,
    judged_args,
    merge_rewritten,
    private_copies,
    require_judged,
    schema_names,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=8,
)


class Quiet(BaseModel):
    """A model that does not say all of itself when it is dumped."""

    amount: int
    hidden: int = Field(7, exclude=True)

    @field_serializer("amount")
    def _nothing(self, _value: int) -> int:
        return 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        """A member of the dumped form only."""
        return 1


class Named(BaseModel):
    """A model with each way to name a field."""

    model_config = ConfigDict(extra="allow")
    one: int = Field(1, alias="First")
    two: int = Field(2, validation_alias=AliasChoices(AliasPath("deep", "two"), "Second", "Other"))
    three: int = Field(3, validation_alias=AliasPath("deep", "three"))
    four: int = Field(4, serialization_alias="Fourth")


class Numbers(RootModel[list[int]]):
    """A model that is a list."""


@dataclass
class Box:
    """A dataclass with a part that is made each time."""

    parts: list[Named] = field(default_factory=list)


@pydantic_dataclass
class Order:
    """A dataclass of pydantic with an alias."""

    number: int = Field(1, alias="No")


def test_form_has_the_fields_that_the_tool_gets_whatever_the_model_dumps():
    assert argument_form({"x": Quiet(amount=500)}) == {"x": {"amount": 500, "hidden": 7}}


def test_form_has_the_names_of_the_schema():
    made = Named(First=5, more=6)
    names = {"First": 5, "Second": 2, "three": 3, "four": 4, "more": 6}
    assert argument_form({"x": made, "y": Box([made])}) == {"x": names, "y": {"parts": [names]}}
    assert argument_form({"x": Order(No=2)}) == {"x": {"No": 2}}
    assert set(schema_names(Named).values()) == set(Named.model_json_schema()["properties"])


def test_form_of_other_values_is_what_the_schema_accepts():
    given_values = {
        "root": Numbers([1, 2]),
        "url": AnyUrl("https://example.com/a"),
        "secret": SecretStr("hidden"),
        "keys": {1: "a"},
        "day": date(2026, 1, 2),
        "exact": Decimal("1.50"),
        "set": {"b", "a"},
    }
    assert argument_form(given_values) == {
        "root": [1, 2],
        "url": "https://example.com/a",
        "secret": "**********",
        "keys": {"1": "a"},
        "day": "2026-01-02",
        "exact": 1.5,
        "set": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (Decimal("500.10"), 500.1),
        (Decimal("5E+2"), 500),
        (Decimal("-0.5"), -0.5),
        (Fraction(1, 4), 0.25),
        (Fraction(500), 500),
    ],
)
def test_exact_number_is_a_number_that_a_rule_can_compare(value, number):
    (form,) = argument_form({"x": value}).values()
    assert (form, type(form)) == (number, type(number))


@pytest.mark.parametrize(
    "value", [Decimal("500.00000000000000000000001"), Decimal("NaN"), Decimal("1E+400"), Fraction(1, 3)]
)
def test_number_that_json_cannot_hold_is_no_other_number(value):
    assert argument_form({"x": value})["x"] is value


def test_iterator_is_not_used_up_by_its_form():
    values = iter([1, 2])
    assert argument_form({"values": values})["values"].keys() == {"type", "text"}
    assert list(values) == [1, 2]


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_plain_values_are_copied_as_they_were_judged(args: dict[str, Any]):
    form = argument_form(args)
    copies = private_copies(args, form, {})
    assert copies == args
    for name, each in args.items():
        if isinstance(each, list | dict):
            assert copies[name] is not each


def test_value_that_is_not_plain_is_the_object_itself():
    box, day = Box(), date(2026, 1, 2)
    args = {"box": box, "day": day, "mixed": [day]}
    copies = private_copies(args, argument_form(args), {})
    assert all(copies[name] is args[name] for name in args)


@pytest.fixture
def observing(tmp_path):
    """Give a guard that only observes."""
    (tmp_path / ".system").mkdir()
    text = "schema_version: v1\nenforcement: observe\nagents: {crew: {kind: program, unknown_tools: allow}}\n"
    (tmp_path / ".system/deedbook.yaml").write_text(text)
    with guard("crew", workspace=tmp_path) as made:
        yield made


def events(governed):
    governed.close()
    (place,) = (governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    return list(read(place))


def test_change_after_the_decision_is_recorded_as_cancelled_and_denied(program_guard):
    governed = program_guard("allow")
    permit = governed.current.before("pay", {"amount": 5})
    assert judged_args(permit) == {"amount": 5}
    require_judged(permit, {"amount": 5})
    with pytest.raises(CallDenied, match="changed after the decision"):
        require_judged(permit, {"amount": 999})
    (ended,) = [event.payload for event in events(governed) if event.type == "tool.error"]
    assert ended["outcome"] == "cancelled"


def test_change_under_observe_is_noted_with_what_the_tool_gets(observing):
    permit = observing.current.before("pay", {"amount": 5})
    require_judged(permit, {"amount": float("nan")})
    require_judged(permit, {"amount": 999})
    permit.conversation.after(permit, "paid")
    noted = [event.payload["said"] for event in events(observing) if event.payload.get("event") == CHANGED]
    assert noted[1] == {"args": {"amount": 999}}
    assert "refused" in noted[0]["args"]


def test_true_is_not_one_and_text_is_no_number(program_guard):
    permit = program_guard("allow").current.before("pay", {"amount": 1})
    assert is_judged(permit, {"amount": 1})
    assert not any(is_judged(permit, {"amount": each}) for each in (True, "1", None, float("inf")))
    permit.conversation.after(permit, "paid")


def test_argument_that_a_hook_left_alone_keeps_its_object(program_guard):
    permit = program_guard("allow").current.before("pay", {"First": "2026-01-02", "amount": 7})
    day = date(2026, 1, 2)
    merged = merge_rewritten(permit, {"one": day, "amount": 5}, {"First": "2026-01-02", "amount": 5}, {"one": "First"})
    assert merged == {"First": day, "amount": 7}
    permit.conversation.after(permit, "paid")
