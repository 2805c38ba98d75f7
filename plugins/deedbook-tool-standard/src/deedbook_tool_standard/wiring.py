"""References between the steps of a sequence: ``{from: /args/text}`` stands for a value that is known by then.

A JSON pointer (RFC 6901) leads into ``/args``, the arguments of the call, or ``/steps/ID``, the result of an earlier
step. References may stand anywhere in a value; ``{literal: …}`` keeps what looks like one as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from deedbook.contract import Failed, Json, Object
from deedbook.contract.pointers import InvalidPointerError, find_value, join_pointer, split_pointer

from .templates import resolve_reference


def references(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every reference in *value*: where it stands (a JSON pointer), and what its ``from`` says."""
    if isinstance(value, dict):
        if "from" in value:
            yield at, value
        elif value.keys() != {"literal"}:
            for key, inner in value.items():
                yield from references(inner, at + join_pointer(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from references(inner, f"{at}/{index}")


def reference_faults(said: Any, schema: Object, known: frozenset[str], later: frozenset[str]) -> Iterator[str]:
    """Yield what is wrong with one reference; *known* steps have ended by then, *later* ones have not."""
    if not said.keys() <= {"from", "default"} or not isinstance(said["from"], str):
        yield 'a reference is {from: "/args/…"} or {from: "/steps/ID/…"}, with default: if it may lead nowhere'
        return
    pointer: str = said["from"]
    if pointer != "/args" and not pointer.startswith(("/args/", "/steps/")):
        yield f"{pointer!r} leads nowhere; a pointer begins with /args or /steps/ID"
        return
    try:
        steps = split_pointer(pointer)
    except InvalidPointerError as problem:
        yield str(problem)
        return
    if steps[0] == "args":
        yield from _argument_faults(pointer, steps[1:], schema, needed="default" not in said)
    elif steps[1] in later:
        yield f"{pointer!r}: step {steps[1]!r} comes later; a step sees only those before it"
    elif steps[1] not in known:
        yield f"{pointer!r}: there is no step {steps[1]!r} before; there is {', '.join(sorted(known)) or 'none'}"


def _argument_faults(pointer: str, steps: list[str], schema: Object, *, needed: bool) -> Iterator[str]:
    """Follow a pointer into the arguments as far as *schema* declares properties."""
    node: Any = resolve_reference(schema, schema)
    for step in steps:
        inside = node.get("properties") if isinstance(node, dict) else None
        if inside is None:
            if node is schema or not isinstance(node, dict) or node.get("type") in ("string", "integer", "boolean"):
                yield f"{pointer!r}: schema_in declares no property {step!r}"
            return
        if step not in inside:
            yield f"{pointer!r}: schema_in declares no property {step!r}; it has {', '.join(sorted(inside)) or 'none'}"
            return
        if needed and step not in node.get("required", ()):
            yield f"{pointer!r}: schema_in does not require {step!r}; add it to required, or give a default:"
            return
        node = resolve_reference(inside[step], schema)


def fill(value: Any, known: Mapping[str, Json]) -> Json:
    """Return *value* with every reference replaced by what it leads to; raises `Failed`."""
    if isinstance(value, dict):
        if "from" in value:
            return _follow(value, known)
        if value.keys() == {"literal"}:
            return value["literal"]  # type: ignore[no-any-return]
        return {key: fill(inner, known) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, known) for inner in value]
    return value  # type: ignore[no-any-return]


def _follow(said: Mapping[str, Any], known: Mapping[str, Json]) -> Json:
    nothing = object()
    found = find_value(known, said["from"], said.get("default", nothing))
    if found is nothing:
        raise Failed("SEQUENCE_FAILED", f"{said['from']!r} leads nowhere in what there is")
    return found  # type: ignore[no-any-return]
