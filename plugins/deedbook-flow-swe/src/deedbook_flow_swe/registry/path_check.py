"""Check the paths of a contract one by one: placeholders, and whether they stay in the data folder."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deedbook.format.schema import suggest
from deedbook.policy.conditions import normal_path
from deedbook_flow_swe.contract import (
    ARGUMENTS,
    EACH_UNIT,
    PLACEHOLDERS,
    UNIT,
    fill,
    find_placeholders,
)
from deedbook_flow_swe.globs import MOST_FOLDERS, whole_glob

from .contracts import Keys, is_agent_file, own_files, path_entries
from .files import PipelineFile

_ANY_VALUES: Final[Mapping[str, str]] = dict.fromkeys(PLACEHOLDERS, "x")
_UNIT_KEY: Final = "unit."


def check_paths(file: PipelineFile, *, unit: bool, unit_keys: frozenset[str] | None) -> Iterator[tuple[str, Keys]]:
    """Yield what is wrong with each path of a contract, and the keys that lead to it.

    *unit*: the phase works on one unit. *unit_keys* are the keys of a unit; ``None`` if they are unknown.
    """
    said = file.front
    for keys, path in path_entries(said):
        known = unit or _is_result_of_unit(said, keys)
        why = _path_flaw(path, unit=known)
        if why is not None:
            yield f"{keys[-1] if isinstance(keys[-1], str) else keys[-2]}: {path[:200]}: {why}", keys
        elif is_agent_file(path) and keys[:2] == ("context_scope", "include") and path not in own_files(said["agent"]):
            own = " and ".join(own_files(said["agent"]))
            yield f"include: {path[:200]}: an agent's prompt has only its own {own}", keys
    for index, rule in enumerate(said.get("validation_rules", ())):
        if "command" in rule and unit_keys is not None:
            keys = ("validation_rules", index, "command", "args")
            yield from _argument_flaws(rule["command"], keys, unit_keys)


def _path_flaw(path: str, *, unit: bool) -> str | None:
    for name in find_placeholders(path):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            return f"there is no placeholder {{{name}}}{suggest(name, PLACEHOLDERS)}; there are {known}"
        if name == UNIT and not unit:
            return f"the phase works on no unit, so there is no {{{UNIT}}}; write * for all units"
    filled = whole_glob(fill(path, _ANY_VALUES))
    if "{" in filled or "}" in filled:
        return "a brace that belongs to no placeholder"
    if path.count("**/") > MOST_FOLDERS:
        return f"it has more than {MOST_FOLDERS} times **/; write a simpler glob"
    if path.startswith("!"):
        return "it begins with !; name what is excluded in exclude or in forbidden_actions"
    if normal_path(filled) != filled:
        return "it leaves the data folder, or is no plain path; write a relative path without .. and ."
    return None


def _is_result_of_unit(said: Mapping[str, Any], keys: Keys) -> bool:
    """Return whether the path at *keys* is where a command writes the result of one unit."""
    if keys[0] != "validation_rules":
        return False
    return bool(said["validation_rules"][keys[1]]["command"].get("each") == EACH_UNIT)


def _argument_flaws(command: Mapping[str, Any], keys: Keys, unit_keys: frozenset[str]) -> Iterator[tuple[str, Keys]]:
    each_unit = command.get("each") == EACH_UNIT
    units = [f"{_UNIT_KEY}{key}" for key in sorted(unit_keys)] if each_unit else []
    known = [name for name in ARGUMENTS if each_unit or name != UNIT] + units
    for inner, text in _texts(command.get("args", {}), keys):
        for name in find_placeholders(text):
            if name not in known:
                listed = ", ".join(f"{{{each}}}" for each in known)
                yield f"args: there is no placeholder {{{name}}} here{suggest(name, known)}; there are {listed}", inner


def _texts(value: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    """Yield each text in *value*, with the keys that lead to it."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each, (*keys, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _texts(each, (*keys, index))
