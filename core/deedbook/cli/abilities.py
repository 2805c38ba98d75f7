"""``deedbook abilities``: what the workspace declares; imports no plugin.

Effects are those of the charter in force, as long as the sources are the ones that it was compiled from.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from .common import Asked, json_option, profile_option
from .output import as_json, say, table

if TYPE_CHECKING:
    from deedbook.workspaces.declarations import AbilitySource, Workspace


@click.command("abilities")
@profile_option
@json_option
@click.pass_obj
def command(asked: Asked, profile: str | None) -> int:
    """List the abilities of the workspace: what they are, and what stands behind them."""
    from deedbook.kernel import read_workspace

    source = read_workspace(asked.workspace, profile)
    rows = [_declared(ability) for ability in sorted(source.abilities.values(), key=lambda found: found.id)]
    rows += _models(source)
    if asked.json:
        as_json({"schema_version": "v1", "profile": source.profile, "abilities": rows})
    elif rows:
        known = _compiled(source)
        table((row["id"], _handler(row), _effects(row, known), row["summary"]) for row in rows)
    else:
        say("no abilities are declared; add one in .system/registry/low-level/")
    return 0


def _declared(ability: "AbilitySource") -> dict[str, Any]:
    return {
        "id": ability.id,
        "handler": dict(ability.handler),
        "effects": ability.effects,
        "tags": sorted(ability.tags),
        "summary": ability.summary,
        "place": ability.place,
    }


def _models(source: "Workspace") -> list[dict[str, Any]]:
    """Return the abilities that the profile in force makes of its models."""
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


def _compiled(source: "Workspace") -> Mapping[str, Any]:
    """Return the abilities of the charter that was last in force, if it was made of what the workspace says now."""
    from deedbook.errors import DeedbookError
    from deedbook.files import Folder
    from deedbook.kernel import VERSION
    from deedbook.store import Store

    try:
        with Folder.at(source.state) as state:
            store = Store(state)
            digest = store.current()
            kept = store.find(digest) if digest else None
    except (DeedbookError, OSError):
        return {}
    made_of = kept and (kept.document["kernel"], kept.document["profile"], kept.document["sources"])
    now = (VERSION, source.profile, dict(source.digests))
    return kept.document["abilities"] if kept and made_of == now else {}


def _effects(row: dict[str, Any], compiled: Mapping[str, Any]) -> str:
    """Return the effects that policies see, or what YAML has of them where no charter says."""
    entry = compiled.get(row["id"])
    return entry["effects"] if entry else row["effects"] or "as declared"


def _handler(row: dict[str, Any]) -> str:
    return " ".join(f"{kind} {name}" for kind, name in row["handler"].items())
