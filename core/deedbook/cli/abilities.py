"""``deedbook abilities``: what the workspace declares; imports no plugin."""

import click

from deedbook.kernel import read_workspace

from .common import json_option, profile_option
from .output import as_json, say, table


@click.command("abilities")
@profile_option
@json_option
@click.pass_obj
def command(workspace: str, profile: str | None, *, as_json_: bool) -> int:
    """List the abilities of the workspace: what they are, and what stands behind them."""
    source = read_workspace(workspace, profile)
    rows = [
        {
            "id": ability.id,
            "handler": dict(ability.handler),
            "effects": ability.effects,
            "tags": sorted(ability.tags),
            "summary": ability.summary,
            "place": ability.place,
        }
        for ability in sorted(source.abilities.values(), key=lambda found: found.id)
    ]
    chosen = source.profiles.get(source.profile)
    for tier, model in sorted(chosen.models.items()) if chosen else ():
        made = {"id": f"model/{tier}", "handler": {"provider": model.provider}, "effects": None, "tags": []}
        rows.append({**made, "summary": f"{model.model} by {model.provider}", "place": ".system/deedbook.yaml"})
    if as_json_:
        as_json({"schema_version": "v1", "profile": source.profile, "abilities": rows})
    elif rows:
        table((row["id"], " ".join(_handler(row)), row["effects"] or "as declared", row["summary"]) for row in rows)
    else:
        say("no abilities are declared; add one in .system/registry/low-level/")
    return 0


def _handler(row: dict[str, object]) -> list[str]:
    handler = row["handler"]
    assert isinstance(handler, dict)
    return [f"{kind} {name}" for kind, name in handler.items()]
