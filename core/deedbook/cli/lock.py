"""``deedbook lock``: compile, compare, pin."""

import click

from deedbook.bindings import unguarded
from deedbook.files import Folder
from deedbook.kernel import VERSION, read_workspace
from deedbook.locks import LOCK, Store, lock
from deedbook.plugins import discover
from deedbook.terminal import plain

from .common import json_option, profile_option
from .output import as_json, message, say


@click.command("lock")
@click.option("--editable", is_flag=True, help="Accept plugins that are installed in place.")
@profile_option
@json_option
@click.pass_obj
def command(workspace: str, profile: str | None, *, editable: bool, as_json_: bool) -> int:
    """Compile the charter, print what became looser or tighter, and pin it in .system/deedbook.lock."""
    source = read_workspace(workspace, profile)
    with Folder.at(source.root) as root, Folder.at(source.state, create=True) as state:
        opened = lock(source, discover(), Store(state), root, kernel=VERSION, editable=editable)
    changes, free = opened.changes, unguarded(opened.charter)
    if as_json_:
        as_json(
            {
                "schema_version": "v1",
                "charter": opened.charter.digest,
                "previous": opened.previous,
                "looser": list(changes.looser),
                "tighter": list(changes.tighter),
                "other": list(changes.other),
                "without_policy": free,
            }
        )
        return 0
    for way, texts in (("looser", changes.looser), ("tighter", changes.tighter), ("other", changes.other)):
        for text in texts:
            say(f"{way:8}{plain(text)}")
    if not changes:
        say("nothing changed")
    for name in free:
        say(f"no policy fits {plain(name)}: it is allowed where its scope, schema and hooks allow it")
    message(f"charter {opened.charter.digest} is pinned in {LOCK}")
    return 0
