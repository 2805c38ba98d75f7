"""``tool: sequence``: abilities one after the other, wired by JSON pointers; each passes the door as a child call."""

from collections.abc import Iterator
from typing import Any, get_args

from deedbook.contract import AbilityDeclaration, Ctx, Effects, Failed, HandlerSpec, Host, Json, Object

from .shapes import strict
from .wiring import fill, reference_faults, references

_EFFECTS = get_args(Effects)
_NAME: Object = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,63}$"}
_SETTINGS = strict(
    {
        "steps": {
            "description": "What is done, in this order",
            "type": "array",
            "minItems": 1,
            "maxItems": 100,
            "items": strict(
                {
                    "id": {**_NAME, "description": "What later steps call its result"},
                    "ability": {"type": "string", "minLength": 1},
                    "args": {"description": "Values, or {from: a JSON pointer}", "type": "object"},
                },
                optional=frozenset({"args"}),
            ),
        },
        "result": {"description": "A value with references; without it, the last step's result"},
    },
    optional=frozenset({"result"}),
)


def check(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an ability of this tool."""
    steps = declared.settings["steps"]
    if declared.schema_in is None:
        yield "", "schema_in is missing: it declares the arguments that /args leads into"
    schema = declared.schema_in or {}
    names = [step["id"] for step in steps]
    for index, step in enumerate(steps):
        at = f"/with/steps/{index}"
        if step["id"] in names[:index]:
            yield f"{at}/id", f"step {step['id']!r} stands twice; each has a name of its own"
        yield from _ability_faults(f"{at}/ability", step["ability"], declared)
        if declared.schema_in is not None:
            known, later = frozenset(names[:index]), frozenset(names[index:])
            yield from _wiring_faults(f"{at}/args", step.get("args", {}), schema, known, later - known)
    if declared.schema_in is not None:
        yield from _wiring_faults(
            "/with/result", declared.settings.get("result"), schema, frozenset(names), frozenset()
        )
    yield from _effects_faults(declared)


def _wiring_faults(
    at: str, value: Any, schema: Object, known: frozenset[str], later: frozenset[str]
) -> Iterator[tuple[str, str]]:
    for where, said in references(value):
        yield from ((at + where, why) for why in reference_faults(said, schema, known, later))


def _ability_faults(at: str, ability: str, declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    if ability == declared.id:
        yield at, f"{ability!r} would call itself; a sequence has no loops"
    elif ability not in declared.uses:
        used = ", ".join(sorted(declared.uses)) or "nothing"
        yield at, f"{ability!r} is not among what the ability may call ({used}); add it to uses:"


def _effects_faults(declared: AbilityDeclaration) -> Iterator[tuple[str, str]]:
    """Yield whether effects are less than those of the steps: policies judge a sequence by what it says of itself."""
    own = declared.effects
    called = {step["ability"] for step in declared.settings["steps"]} & declared.uses.keys()
    least = max((_EFFECTS.index(declared.uses[name]) for name in called), default=0)
    if _EFFECTS.index(own or "none") < least or own is None:
        said = f"effects: {own} are" if own else "effects: are not said, which is"
        worst = ", ".join(sorted(name for name in called if _EFFECTS.index(declared.uses[name]) == least))
        yield "/effects", f"{said} less than what its steps do; write effects: {_EFFECTS[least]} (because of {worst})"


class Sequence:
    """Do the steps in order and stop at the first that fails; what was done until then is in the ledger."""

    spec = HandlerSpec(settings=_SETTINGS, gives={}, effects="none", interruptible=True, check=check, files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        self._steps = settings["steps"]
        self._result = settings.get("result", {"from": f"/steps/{self._steps[-1]['id']}"})

    async def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Do the steps; fails with the code of the step that failed, or ``SEQUENCE_FAILED``."""
        done: dict[str, Json] = {}
        known: dict[str, Any] = {"args": args, "steps": done}
        for step in self._steps:
            if ctx.remaining() <= 0:
                raise Failed("TOOL_TIMEOUT", f"step {step['id']}: the time is up; it was not begun")
            try:
                given: Any = fill(step.get("args", {}), known)
                done[step["id"]] = await ctx.acall(step["ability"], given)
            except Failed as problem:
                why = f"step {step['id']} ({step['ability']}): {problem}"
                raise Failed(problem.code, why, retryable=problem.retryable and not done) from None
        return fill(self._result, known)
