"""Attacks with values: arguments and results that do not fit, numbers and texts that cannot be recorded, secrets."""

from collections.abc import Iterator
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, IntakeError
from deedbook.policy.bound import BoundAbility
from deedbook.workspace.site import SETTINGS

from .attacks import Attack, NotApplicable, PromiseBroken, expect
from .decisions import no_allowed, no_call
from .target import Target

_STRANGE: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"guarantees-unknown": 1},
    {"path": 0, "text": 0, "prompt": 0},
    {"guarantees-unknown": {"a": []}},
)
_DEEP: Final = 200
_CARD: Final = "4111 1111 1111 1111"


def _get_ability(target: Target, ability: str) -> BoundAbility:
    return target.base.kernel.bindings.abilities[ability]


def _misfits(bound: BoundAbility, args: Any) -> Iterator[Any]:
    """Yield arguments that the schema of an ability refuses: a member is missing, unknown, or of another type."""
    wrong: list[Any] = [{**args, name: {"guarantees": None}} for name in args]
    wrong += [{name: value for name, value in args.items() if name != left} for left in args]
    wrong += [{**args, "guarantees-unknown": 1}, *_STRANGE]
    yield from (each for each in wrong if not bound.takes.valid(each))


def _wrong_arguments(target: Target) -> str:
    call, tried = target.call, 0
    for args in _misfits(_get_ability(target, call.ability), dict(call.args)):
        made = target.base.attempt(call.ability, args, call.principal)
        expect(made.is_refused, f"{call.ability} took arguments that its schema refuses: {args!r}: {made}")
        expect(any(each.type == "schema.violation" for each in made.events), "the violation is not in the ledger")
        tried += 1
    if not tried:
        raise NotApplicable(f"the schema of {call.ability} takes every object")
    return f"{call.ability} refused {tried} arguments that its schema does not take"


def _wrong_result(target: Target) -> str:
    call = target.allowed_call
    bound = _get_ability(target, call.ability)
    wrong = next(
        (each for each in ({"guarantees-unknown": 1}, [None], "no", 0, None) if not bound.gives.valid(each)), ""
    )
    if bound.gives.valid(wrong):
        raise NotApplicable(f"the schema of {call.ability} allows every result")
    effects = target.base.effects
    effects.result = wrong
    try:
        made = target.base.attempt(call.ability, call.args, call.principal)
    finally:
        effects.forget_result()
    expect(
        made.code == "SCHEMA_VIOLATION", f"the caller of {call.ability} got a result that its schema refuses: {made}"
    )
    expect(any(each.type == "schema.violation" for each in made.events), "the violation is not in the ledger")
    return str(made)


# --- intake -----------------------------------------------------------------------------------------------------------


def _deep() -> Any:
    value: Any = 0
    for _ in range(_DEEP):
        value = [value]
    return value


def _refuse_value(target: Target, value: Any) -> None:
    call = target.call
    for args in ({**call.args, "guarantees": value}, dict.fromkeys(call.args, value) or {"guarantees": value}):
        made = target.base.attempt(call.ability, args, call.principal)
        expect(made.is_refused and made.code == "INTAKE_REFUSED", f"{call.ability} took {str(value)[:40]!r}: {made}")


def _not_numbers(target: Target) -> str:
    for value in (float("nan"), float("inf"), float("-inf")):
        _refuse_value(target, value)
    return "NaN and both infinities were refused"


def _huge_numbers(target: Target) -> str:
    for value in (2**53, -(2**53), 10**400, 1e20):
        _refuse_value(target, value)
    return "integers beyond 2^53 - 1, and floats that are spelled like them, were refused"


def _odd_texts(target: Target) -> str:
    for value in ("\ud800", {1: "a key that is no text"}, _deep(), b"bytes"):
        _refuse_value(target, value)
    return "lone surrogates, keys that are no text, 200 levels and bytes were refused"


def _doubled_keys(_target: Target) -> str:
    for text in ('{"path": "reports/a", "path": "private/a"}', '{"a": {"b": 1, "b": 2}}', '{"a": NaN}', '{"a": 1e400}'):
        try:
            canonical.parse(text)
        except IntakeError:
            continue
        raise PromiseBroken(f"the JSON {text} is accepted")
    return "JSON with a doubled key, NaN or 1e400 was refused"


# --- secrets ----------------------------------------------------------------------------------------------------------


def _no_secret(target: Target) -> str:
    return "" if target.secrets else "no secret is declared; an entry under secrets: makes this apply"


def _hide_secret(target: Target) -> str:
    for name, value in target.secrets.items():
        found = _search_records(target, value, {"text": f"begin {value} end", "list": [value]})
        expect(not found, f"the value of the secret {name} reached {', '.join(found)}")
    return f"the values of {', '.join(target.secrets)} in arguments are marked in every record"


def _no_card_rule(target: Target) -> str:
    return "" if {"detect": "card"} in list(target.document["seal"]) else "seal: has no {detect: card}"


def _seal_card(target: Target) -> str:
    found = _search_records(target, _CARD, {"text": f"pay with {_CARD}"})
    expect(not found, f"a card number reached {', '.join(found)}", f"{SETTINGS}: seal: [{{detect: card}}]")
    return "a card number in arguments is sealed in every ledger"


def _search_records(target: Target, text: str, extra: dict[str, Any]) -> list[str]:
    """Make calls with *text* in their arguments; return the ledgers that hold it."""
    call = target.calls[0] if target.calls else None
    target.base.attempt("guarantees/unknown", extra)
    if call is not None:
        target.base.attempt(call.ability, {**call.args, **extra}, call.principal)
        for name, value in call.args.items():
            if isinstance(value, str):
                target.base.attempt(call.ability, {**call.args, name: text}, call.principal)
    needle = text.encode()
    places = target.scratch.state.rglob("*.jsonl")
    return [str(place.relative_to(target.scratch.state)) for place in places if needle in place.read_bytes()]


# --- YAML -------------------------------------------------------------------------------------------------------------


def _doubled_yaml(target: Target) -> str:
    copy = target.variant()
    copy.edit(lambda _settings: None)  # JSON, so that a key is easily added
    place = copy.root / SETTINGS
    text = place.read_text(encoding="utf-8").rstrip().removesuffix("}")
    place.write_text(f'{text},\n"enforcement": "observe",\n"enforcement": "enforce"}}\n', encoding="utf-8")
    try:
        target.open_raw(copy).close()
    except DeedbookError as problem:
        return f"the start was refused: {problem.error}"
    raise PromiseBroken(f"a workspace whose {SETTINGS} has the key enforcement twice starts")


ATTACKS: Final = (
    Attack(
        id="arguments-schema", promise="A call whose arguments do not fit their schema does not happen.",
        applies=no_call, run=_wrong_arguments,
    ),
    Attack(
        id="result-schema", promise="A result that does not fit its schema does not reach the caller.",
        applies=no_allowed, run=_wrong_result,
    ),
    Attack(
        id="not-a-number", promise="NaN and infinity are not accepted as arguments.", applies=no_call,
        run=_not_numbers,
    ),
    Attack(
        id="huge-number", promise="A number that readers of JSON could read differently is not accepted.",
        applies=no_call, run=_huge_numbers,
    ),
    Attack(
        id="odd-text", promise="Values that JSON cannot hold are not accepted as arguments.", applies=no_call,
        run=_odd_texts,
    ),
    Attack(
        id="doubled-key-json", promise="JSON from outside with the same key twice is not accepted.", run=_doubled_keys
    ),
    Attack(
        id="doubled-key-yaml", promise="A workspace whose YAML has the same key twice does not start.",
        run=_doubled_yaml,
    ),
    Attack(
        id="secret-in-arguments", promise="The value of a secret reaches no record.", applies=_no_secret,
        run=_hide_secret,
    ),
    Attack(
        id="card-in-arguments", promise="A card number reaches no ledger.", applies=_no_card_rule, run=_seal_card
    ),
)  # fmt: skip
