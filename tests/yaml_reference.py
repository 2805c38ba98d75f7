"""``docs/yaml.md``, made of the schemas: ``python tests/yaml_reference.py > docs/yaml.md`` writes it anew."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[1] / "schemas"
FORMS = {
    "deedbook_v1": "Settings",
    "ability_v1": "Abilities",
    "hook_v1": "Hooks",
    "policy_v1": "Policies",
    "skill_frontmatter_v1": "Skills: the front matter of SKILL.md",
    "agent_card_v1": "Agents: the card",
    "persona_v1": "Personas",
    "policy_test_v2": "Tests of policies",
    "hook_test_v1": "Tests of hooks",
}
"""The schemas of files that people write, each with the heading of its section."""
ELSEWHERE = {"ability": "abilities", "hook": "hooks", "policy": "policies"}
"""Definitions that have a section of their own, wherever else they stand."""
HEAD = """# Every key of every file

Made from the schemas in `schemas/` by `python tests/yaml_reference.py`, so that it says what is checked, no more and no
less. A key in **bold** has to be there; `<name>` is a name of yours, `[]` each item of a list. `deedbook init` writes
these schemas beside your files, and editors complete and check by them. [workspace.md](workspace.md) tells what
files are for, [match.md](match.md) how matches hold.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(line for form, title in FORMS.items() for line in _section(form, title))]).rstrip() + "\n"


def _section(form: str, title: str) -> Iterator[str]:
    schema = json.loads((SCHEMAS / f"{form}.json").read_text(encoding="utf-8"))
    yield f"## {title}"
    yield ""
    yield f"`{schema['title']}` · `{form}`: {_sentence(schema)}"
    yield ""
    yield "| key | is | if left out | means |"
    yield "|---|---|---|---|"
    yield from _rows(schema, schema, "", top=form == "deedbook_v1")
    yield ""


def _rows(schema: Any, node: Any, path: str, *, top: bool) -> Iterator[str]:
    for name, part in node.get("properties", {}).items():
        yield from _row(schema, part, f"{path}{name}", required=name in node.get("required", ()), top=top)
    more = node.get("additionalProperties")
    if isinstance(more, dict):
        yield from _row(schema, more, f"{path}<name>", required=False, top=top)


def _row(schema: Any, part: Any, key: str, *, required: bool, top: bool) -> Iterator[str]:
    reference = part.get("$ref", "").rpartition("/")[2]
    full = {**schema["$defs"][reference], **part} if reference else part
    shown = f"**`{key}`**" if required else f"`{key}`"
    default = f"`{_json(full['default'])}`" if "default" in full else ""
    if top and reference in ELSEWHERE:
        heading = ELSEWHERE[reference]
        yield f"| {shown} | object | | as in a file of its own: [{heading}](#{heading}) |"
        return
    yield f"| {shown} | {_kind(full)} | {default} | {_cell(full.get('description', ''))} |"
    yield from _rows(schema, full, f"{key}.", top=top)
    items = full.get("items")
    if isinstance(items, dict):
        reference = items.get("$ref", "").rpartition("/")[2]
        inner = {**schema["$defs"][reference], **items} if reference else items
        if inner.get("properties"):
            yield from _rows(schema, inner, f"{key}[].", top=top)


def _kind(part: Any) -> str:
    if "const" in part:
        return f"`{_json(part['const'])}`"
    if "enum" in part:
        return ", ".join(f"`{_json(value)}`" for value in part["enum"])
    kinds = part.get("type", "anything")
    told = " or ".join(kinds) if isinstance(kinds, list) else kinds
    words = {"minimum": "at least", "maximum": "at most"}
    bounds = [f"{word} {part[name]}" for name, word in words.items() if name in part]
    return ", ".join([told, *bounds])


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sentence(schema: Any) -> str:
    return f"{_cell(schema.get('description', '')).rstrip('.')}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
