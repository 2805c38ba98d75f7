"""Find keys of older forms in sources, and describe their replacements."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.format.pointers import join_pointer

OLD_GUARDS: Final = frozenset({"guardrail", "guardrails", "guard", "guards"})
"""Keys that older forms used for the guards of an ability."""

_FREE: Final = frozenset({"with", "schema_in", "schema_out"})
_SECTIONS: Final[Mapping[str, str]] = {"ability_v1": "", "deedbook_v1": "abilities"}


def find_old_guards(schema: str, value: Any) -> Iterator[str]:
    """Yield the places (JSON pointers, at any depth) of old guard keys in a file of *schema*.

    A plugin's settings and the schemas of arguments and results may use any key.
    """
    section = _SECTIONS.get(schema)
    if section is None or not isinstance(value, dict):
        return
    abilities = {"": value} if not section else value.get(section, {})
    for name, ability in abilities.items() if isinstance(abilities, dict) else ():
        at = join_pointer(section, name) if section else ""
        if isinstance(ability, dict):
            for key, inner in ability.items():
                if key not in _FREE:
                    yield from _find_guards(key, inner, at)


def _find_guards(key: str, value: Any, above: str) -> Iterator[str]:
    at = above + join_pointer(key)
    if key in OLD_GUARDS:
        yield at
    elif isinstance(value, dict):
        for inner, part in value.items():
            yield from _find_guards(inner, part, at)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _find_guards(str(index), part, at)


def guard_message(key: str) -> str:
    """Return what to write instead of an old guard key."""
    return (
        f"{key}: one word for all guards is no longer read. Define hooks in .system/hooks/*.yaml and name them in the "
        "ability: hooks.pre_create for preflight (PreAbilityCreate), hooks.pre_call for what guards a call "
        f"(PreAbilityCall), hooks.post_call for telemetry (PostAbilityCall); then remove {key}"
    )
