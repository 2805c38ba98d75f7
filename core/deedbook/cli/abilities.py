"""``deedbook abilities``: what the workspace declares; imports no plugin."""

from typing import TYPE_CHECKING, Any

import click

from .common import Asked, json_option, profile_option
from .output import as_json, say, table

if TYPE_CHECKING:
    from deedbook.declarations import AbilitySource, Workspace


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
        table((row["id"], _handler(row), row["effects"] or "as declared", row["summary"]) for row in rows)
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


def _handler(row: dict[str, Any]) -> str:
    return " ".join(f"{kind} {name}" for kind, name in row["handler"].items())
