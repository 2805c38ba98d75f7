"""List what the workspace declares; `abilities show`."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option, profile_option
from deedbook.cli.output import as_json, data_command, say, table

if TYPE_CHECKING:
    from deedbook.workspace.declarations import AbilitySource, Workspace

SECTION: Final = "Workspace"


@data_command
@click.group("abilities", cls=SuggestingGroup, invoke_without_command=True)
@profile_option
@json_option
@click.pass_context
def command(ctx: click.Context, profile: str | None) -> int:
    """List the abilities of the workspace, or show one with its schemas, hooks and policies."""
    return _list(ctx.obj, profile) if ctx.invoked_subcommand is None else 0


def _list(options: GlobalOptions, profile: str | None) -> int:
    from deedbook.workspace.workspace import read_workspace

    source = read_workspace(options.workspace, profile)
    rows = [_row(ability) for ability in sorted(source.abilities.values(), key=lambda found: found.id)]
    rows += _models(source)
    if options.json:
        as_json({"schema_version": "v1", "profile": source.profile, "abilities": rows})
    elif rows:
        known = _charter_abilities(source)
        table((row["id"], _handler(row), _effects(row, known), row["summary"]) for row in rows)
    else:
        say("no abilities are declared; add one in .system/registry/low-level/")
    return 0


def _row(ability: "AbilitySource") -> dict[str, Any]:
    return {
        "id": ability.id,
        "handler": dict(ability.handler),
        "effects": ability.effects,
        "tags": sorted(ability.tags),
        "summary": ability.summary,
        "place": ability.place,
    }


def _models(source: "Workspace") -> list[dict[str, Any]]:
    """Return the abilities of the models in the profile in force."""
    profile = source.profiles.get(source.profile)
    return [
        {
            "id": f"model/{tier}",
            "handler": {"provider": model.provider},
            "effects": None,
            "tags": [],
            "summary": f"the model of tier {tier}{f': {model.model}' if model.model else ''}",
            "place": ".system/deedbook.yaml",
        }
        for tier, model in sorted(profile.models.items() if profile else ())
    ]


def _charter_abilities(source: "Workspace") -> Mapping[str, Any]:
    """Return the abilities of the charter that was last in force, if the workspace still has the same sources."""
    from deedbook.charter.cachekeys import cache_key
    from deedbook.charter.store import Store
    from deedbook.format.errors import DeedbookError
    from deedbook.format.files import Folder
    from deedbook.format.release import VERSION

    try:
        with Folder.at(source.state) as state:
            store = Store(state, cache_key(source.root, source.state))
            digest = store.current()
            kept = store.find(digest) if digest and store.authenticates(digest) else None
    except (DeedbookError, OSError):
        return {}
    made_of = kept and (kept.document["kernel"], kept.document["profile"], kept.document["sources"])
    now = (VERSION, source.profile, dict(source.digests))
    return kept.document["abilities"] if kept and made_of == now else {}


def _effects(row: dict[str, Any], compiled: Mapping[str, Any]) -> str:
    """Return the effects that policies see, or those in YAML if no charter has them."""
    entry = compiled.get(row["id"])
    return entry["effects"] if entry else row["effects"] or "as declared"


def _handler(row: dict[str, Any]) -> str:
    return " ".join(f"{kind} {name}" for kind, name in row["handler"].items())


# --- one of them ------------------------------------------------------------------------------------------------------


@command.command("show", short_help="Show one ability: what it is, and which hooks and policies fit it.")
@click.argument("name", shell_complete=completing.abilities)
@profile_option
@json_option
@click.pass_obj
def show(options: GlobalOptions, name: str, profile: str | None) -> int:
    """Show one ability: what it takes and gives, and which hooks and policies match it. Its plugin is imported."""
    from deedbook.format.terminal import plain
    from deedbook.kernel import bindings_for_judging
    from deedbook.workspace.workspace import read_workspace
    from deedbook_author.policy_coverage import find_unguarded

    with bindings_for_judging(read_workspace(options.workspace, profile)) as bindings:
        document = bindings.charter.document
    row = _details(name, document)
    if options.json:
        as_json({"schema_version": "v1", "ability": row})
    else:
        free = [("", plain(str(each))) for each in find_unguarded(document) if each.name == name]
        table((*_describe(row), *free))
    return 0


def _details(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the charter's entry of one ability; raises `BindingError` (``USAGE``)."""
    from deedbook.format.errors import BindingError, fault
    from deedbook.format.schema import suggest

    entry = document["abilities"].get(name)
    if entry is None:
        near = suggest(name, document["abilities"])
        raise BindingError(fault("USAGE", f"there is no ability {name!r}{near}; `deedbook abilities` lists them"))
    kind, plugin = entry["plugin"]
    about = document["plugins"][f"{kind}/{plugin}"]
    schemas = {key: document["schemas"].get(entry[key]) for key in ("takes", "schema_in", "gives", "schema_out")}
    return {
        "id": name,
        "summary": entry["summary"],
        "kind": entry["kind"],
        "handler": {kind: plugin},
        "distribution": f"{about['distribution']} {about['version']}",
        "effects": entry["effects"],
        "tags": list(entry["tags"]),
        "place": entry["place"],
        "uses": list(entry["uses"]),
        "timeout_ms": entry["timeout_ms"],
        **schemas,
        "hooks": _list_fitting(name, document, "hooks"),
        "policies": _list_fitting(name, document, "policies"),
    }


def _list_fitting(name: str, document: Mapping[str, Any], section: str) -> list[str]:
    """Return the hooks of calls, or the policies, that can be asked about an ability."""
    from deedbook.contract.lifecycle import EVENTS
    from deedbook.policy.fitting import facts_of, fittings

    entry = document["abilities"][name]
    facts = facts_of(name, entry)
    hooked = [each for names in entry["hooks"].values() for each in names]
    named = hooked if section == "hooks" else entry["policies"]
    found = [fit for fit in fittings(document, section) if fit.fits(facts, named)]
    return sorted(fit.name for fit in found if section == "policies" or EVENTS[fit.entry["event"]].call)


def _describe(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return an ability as pairs of text, one for each line; a schema in YAML follows the plugin's own."""
    limit = row["timeout_ms"]
    lines = {
        "id": row["id"],
        "summary": row["summary"],
        "kind": row["kind"],
        "handler": f"{_handler(dict(row))} ({row['distribution']})",
        "effects": row["effects"],
        "tags": " ".join(row["tags"]) or "none",
        "place": row["place"],
        "takes": _compact(row["takes"]),
        "schema_in": _compact(row["schema_in"]),
        "gives": _compact(row["gives"]),
        "schema_out": _compact(row["schema_out"]),
        "uses": " ".join(row["uses"]) or "nothing",
        "hooks": " ".join(row["hooks"]) or "none fits",
        "policies": " ".join(row["policies"]) or "none fits",
        "time limit": f"{limit} ms" if limit else "none",
    }
    return [(key, text) for key, text in lines.items() if text]


def _compact(schema: Any) -> str:
    return "" if schema is None else json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
