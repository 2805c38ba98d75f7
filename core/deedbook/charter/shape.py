"""The shape of a charter: the members of its document and their JSON types.

The compiler always makes this shape. A charter that is read from a state folder may hold any JSON, so its shape is
checked before any member is used. A document that passes can be compared, listed and bound without a `KeyError` or a
`TypeError`; binding checks its matches, schemas and settings.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

from deedbook.contract.lifecycle import EVENTS
from deedbook.policy.charter import FORMAT, lists_rules
from deedbook.policy.kinds import KINDS
from deedbook.policy.match import EFFECTS

from .zones import ZONES

Check: TypeAlias = Callable[[Any], str]
"""Returns the path inside a JSON value and what was expected there; empty if the value is valid."""

_NAMES: Final[Mapping[type, str]] = {
    type(None): "null", bool: "a flag", int: "a number", float: "a number",
    str: "text", list: "a list", dict: "an object",
}  # fmt: skip


def wrong_shape(document: Any) -> str:
    """Return the first place where *document* has not the shape of a charter, and what was expected; empty if valid."""
    return _at("$", _DOCUMENT(document) or next(chain(_find_dangling(document), _dangling_extensions(document)), ""))


# --- values -----------------------------------------------------------------------------------------------------------


def _at(step: str, fault: str) -> str:
    return f"{step}{fault}" if fault else ""


def _describe_type(what: str, value: Any) -> str:
    return f": expected {what}, found {_NAMES.get(type(value), 'something else')}"


def _of_type(what: str, *types: type) -> Check:
    return lambda value: "" if type(value) in types else _describe_type(what, value)


def _one_of(*names: str) -> Check:
    def check(value: Any) -> str:
        return "" if type(value) is str and value in names else f": expected one of {', '.join(names)}"

    return check


def _or_null(of: Check) -> Check:
    return lambda value: "" if value is None else of(value)


def _all_of(*checks: Check) -> Check:
    return lambda value: next((fault for check in checks if (fault := check(value))), "")


def _list(of: Check, length: int | None = None) -> Check:
    def check(value: Any) -> str:
        if type(value) is not list or length not in (None, len(value)):
            return _describe_type("a list" if length is None else f"a list of {length}", value)
        return next((f"[{index}]{fault}" for index, each in enumerate(value) if (fault := of(each))), "")

    return check


def _map(of: Check) -> Check:
    """Return the check of an object of which *of* checks every member."""

    def check(value: Any) -> str:
        if type(value) is not dict:
            return _describe_type("an object", value)
        return next((f".{name[:80]}{fault}" for name, each in value.items() if (fault := of(each))), "")

    return check


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Return the check of an object with these members; others are ignored."""
    may = {**required, **(optional or {})}

    def check(value: Any) -> str:
        if type(value) is not dict:
            return _describe_type("an object", value)
        for name, of in may.items():
            if name not in value:
                if name in required:
                    return f".{name}: expected, and not there"
            elif fault := of(value[name]):
                return f".{name}{fault}"
        return ""

    return check


def _between(least: int, most: int) -> Check:
    """Return the check of a whole number from *least* to *most*."""
    what = f": expected a whole number from {least} to {most}"
    return lambda value: "" if type(value) is int and least <= value <= most else what


_TEXT: Final = _of_type("text", str)
_FLAG: Final = _of_type("a flag", bool)
_NUMBER: Final = _of_type("a number", int, float)
_ANY: Final = _of_type("an object", dict)
_TEXTS: Final = _list(_TEXT)
_TEXT_OR_OBJECT: Final = _of_type("text or an object", str, dict)
_NULL_OR_TEXT: Final = _or_null(_TEXT)


# --- the sections -----------------------------------------------------------------------------------------------------

_ANSWER: Final = _one_of("allow", "ask", "deny")
_RULES: Final = _object({"rules": _list(_object({"then": _ANSWER}))}, {"default": _ANSWER})
_GATE: Final = {
    "settings": _ANY,
    "match": _or_null(_ANY),
    "reads": _TEXTS,
    "pure": _FLAG,
    "rewrites": _FLAG,
    "place": _TEXT,
}
_PLUGIN: Final = _list(_TEXT, 2)

_ABILITY: Final = _object(
    {
        "kind": _one_of(*KINDS),
        "plugin": _PLUGIN,
        "settings": _ANY,
        "takes": _TEXT,
        "gives": _TEXT,
        "schema_in": _NULL_OR_TEXT,
        "schema_out": _NULL_OR_TEXT,
        "effects": _one_of(*EFFECTS),
        "interruptible": _FLAG,
        "summary": _TEXT,
        "timeout_ms": _or_null(_NUMBER),
        "tags": _TEXTS,
        "uses": _TEXTS,
        "scopes": _TEXTS,
        "intents": _TEXTS,
        "paths": _TEXTS,
        "policies": _TEXTS,
        "hooks": _map(_TEXTS),
        "big_integers": _FLAG,
        "place": _TEXT,
    },
    {"files": _one_of("host", "sandbox", "none")},
)
_SCRIPT: Final = _object({"argv": _TEXTS, "protocol": _TEXT, "env": _map(_TEXT_OR_OBJECT), "files": _map(_TEXT)})
_HOOK: Final = _object(
    {"event": _one_of(*EVENTS), "priority": _NUMBER, "timeout_ms": _NUMBER, **_GATE},
    {"plugin": _PLUGIN, "script": _SCRIPT, "isolation": _one_of("inline", "thread", "worker")},
)
_SUBJECT: Final = _object({"schema": _TEXT, "answers": _list(_one_of("allow", "advisory", "ask", "deny"))})
_ANY_POLICY: Final = _object(
    {"plugin": _PLUGIN, "rules": _TEXTS, **_GATE},
    {"inline": _FLAG, "calls": _FLAG, "limits": _FLAG, "subjects": _map(_SUBJECT), "loosens": _TEXTS},
)


def _policy(value: Any) -> str:
    return _ANY_POLICY(value) or (_at(".settings", _RULES(value["settings"])) if lists_rules(value) else "")


_CALLERS: Final = _list(_object({}, dict.fromkeys(("principals", "roles", "skills", "actors"), _TEXTS)))
_ZONE: Final = _object({"read": _CALLERS, "propose": _CALLERS})
_MEMORY: Final = _object(
    {
        "zones": _all_of(_object(dict.fromkeys(ZONES, _ZONE)), _map(_ZONE)),
        "verified_by": _TEXTS,
        "keys": _map(_ANY),
        "never": _TEXTS,
        "max_bytes": _NUMBER,
        "max_entries": _NUMBER,
    }
)
_CHECKPOINTS: Final = _object(
    {},
    {
        "key": _NULL_OR_TEXT,
        "keys": _TEXTS,
        "every_events": _NUMBER,
        "every_seconds": _NUMBER,
        "before": _TEXTS,
        "witnesses": _list(_object({}, {"key": _TEXT, "folder": _TEXT, "url": _TEXT})),
    },
)
_CLIENT: Final = _object(
    {"expose": _ANY, "unknown_tools": _ANSWER, "kind": _TEXT, "place": _TEXT},
    {"asks": _TEXT, "wait_s": _NUMBER, "allows": _TEXT},
)
_PRINCIPAL: Final = _object(
    {"roles": _TEXTS, "via": _NULL_OR_TEXT, "key": _NULL_OR_TEXT, "on_behalf_of": _NULL_OR_TEXT}
)
_SKILL: Final = _object(
    {"description": _TEXT, "body": _TEXT, "allowed": _TEXTS, "triggers": _TEXTS, "metadata": _ANY, "source": _TEXT},
    {"commands": _map(_map(_TEXTS)), "without": _map(_TEXT)},
)
_AGENT: Final = _object(
    {"capabilities": _TEXTS, "persona": _NULL_OR_TEXT, "pack": _NULL_OR_TEXT, "digest": _NULL_OR_TEXT},
    {"domain": _TEXT, "allowed": _TEXTS, "without": _map(_TEXT)},
)
_RECORD: Final = _object({"schema": _TEXT, "text": _TEXT, "layer": _TEXT, "by": _TEXT})
_CODE: Final = _object({"distribution": _TEXT, "version": _TEXT, "target": _TEXT, "digest": _NULL_OR_TEXT})

_DOCUMENT: Final = _object(
    {
        "format": _one_of(FORMAT),
        "kernel": _TEXT,
        "profile": _TEXT,
        "durability": _one_of("os", "boundary", "always"),
        "enforcement": _one_of("observe", "enforce"),
        "lock": _one_of("auto", "required"),
        "flow": _NULL_OR_TEXT,
        "models": _map(_TEXT),
        "roles": _map(_TEXT),
        "secrets": _map(_TEXT),
        "seal": _list(_TEXT_OR_OBJECT),
        "file_roots": _TEXTS,
        "plugins": _map(_CODE),
        "schemas": _map(_ANY),
        "sources": _map(_TEXT),
        "abilities": _map(_ABILITY),
        "hooks": _map(_HOOK),
        "policies": _map(_policy),
        "skills": _map(_SKILL),
        "instructions": _map(_TEXT),
        "principals": _map(_PRINCIPAL),
    },
    {
        "agents": _map(_AGENT),
        "approvals": _object({}, {"expires_s": _NUMBER, "run_expires_s": _NUMBER}),
        "checkpoints": _CHECKPOINTS,
        "clients": _map(_CLIENT),
        "default": _object({"irreversible": _one_of("ask", "deny"), "write": _or_null(_ANSWER)}),
        "features": _map(_object({"settings": _ANY, "place": _TEXT})),
        "records": _map(_RECORD),
        "guides": _map(_ANY),
        "max_rounds": _between(0, 20),
        "memory": _MEMORY,
        "persona": _object({"id": _TEXT}),
        "set_aside": _map(_object({"read": _FLAG, "why": _TEXTS})),
        "servers": _map(_object({"timeout_ms": _or_null(_NUMBER)})),
        "workdocs": _of_type("text or a flag", str, bool),
        "workflows": _map(_ANY),
    },
)


# --- names inside a charter -------------------------------------------------------------------------------------------


def _find_dangling(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield each name that refers to something missing in the document."""
    plugins, schemas = document["plugins"], document["schemas"]
    for section in ("abilities", "hooks", "policies"):
        for name, entry in document[section].items():
            plugin = entry.get("plugin")
            if plugin is not None and "/".join(plugin) not in plugins:
                yield f".{section}.{name[:80]}.plugin: expected one of the charter's plugins"
            if plugin is None and "script" not in entry:
                yield f".{section}.{name[:80]}: expected a plugin or a script"
    for name, entry in document["abilities"].items():
        for part in ("takes", "gives", "schema_in", "schema_out"):
            if entry[part] is not None and entry[part] not in schemas:
                yield f".abilities.{name[:80]}.{part}: expected the digest of one of the charter's schemas"
        if (kind := KINDS[entry["kind"]]).tools and entry["plugin"][1] not in kind.tools:
            yield f".abilities.{name[:80]}.plugin: expected a handler of {entry['kind']}"


def _dangling_extensions(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield each dangling name in the members ``features`` and ``records``, and in the subjects of policies."""
    for name, entry in document["policies"].items():
        for subject, row in entry.get("subjects", {}).items():
            if row["schema"] not in document["schemas"]:
                at = f".policies.{name[:80]}.subjects.{subject[:80]}.schema"
                yield f"{at}: expected the digest of one of the charter's schemas"
    for name in document.get("features", {}):
        if f"feature/{name}" not in document["plugins"]:
            yield f".features.{name[:80]}: expected one of the charter's plugins"
    for name, row in document.get("records", {}).items():
        if row["schema"] not in document["schemas"]:
            yield f".records.{name[:80]}.schema: expected the digest of one of the charter's schemas"
