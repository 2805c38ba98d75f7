"""``deedbook keys``: the keys that approvers sign with, and the key of the workspace's log."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import completing
from .common import Asked, OpenGroup, json_option, shown
from .output import as_json, message, say

if TYPE_CHECKING:
    from deedbook.format.notes import VerifierKey

out_option = click.option("--out", metavar="FILE", help="Write the public key into FILE, such as .system/ada.pub.")


@click.group("keys", cls=OpenGroup)
def command() -> None:
    """Make and show the keys that approvers sign with; `rotate` makes the one that signs the workspace's log."""


@command.command("new", short_help="Make a key NAME (Ed25519), and print its public half.")
@click.argument("name")
@click.option(
    "--force", is_flag=True, help="Replace the key of that name, which workspaces that trust it then no longer accept."
)
@out_option
@json_option
@click.pass_obj
def new(asked: Asked, name: str, out: str | None, *, force: bool) -> int:
    """Make a key NAME (Ed25519), keep its private half for you alone, and print its public half."""
    from deedbook.approvals.keys import KeyRing

    refuse_place(out)
    ring = KeyRing.of(os.environ)
    replaced = name in ring.names()
    public = ring.create(name, force=force).public
    tell(asked, [public], out)
    if replaced:
        message("the key before is gone; what it signed stays signed")
        message(f"Workspaces that trust it accept no answer of {name} until they have the public half of the new key")
    message(f"the private key is in {shown(ring.place / name)}; whoever can read it can approve in your name")
    if not asked.json:
        _how(name, out)
    return 0


@command.command("show")
@click.argument("name", required=False, shell_complete=completing.keys)
@out_option
@json_option
@click.pass_obj
def show(asked: Asked, name: str | None, out: str | None) -> int:
    """Print the public half of the key NAME, or of all that are here."""
    from deedbook.approvals.keys import KeyRing

    if out and not name:
        raise click.UsageError("--out needs the NAME of one key")
    refuse_place(out)
    ring = KeyRing.of(os.environ)
    found = [ring.load(each).public for each in ([name] if name else ring.names())]
    if not found and not asked.json:
        message(f"no keys in {shown(ring.place)}; make one with: deedbook keys new NAME")
    tell(asked, found, out)
    return 0


def refuse_place(out: str | None) -> None:
    """Refuse, before a key is made, where its public half cannot go: what is no public key is never overwritten."""
    if out is None:
        return
    from deedbook.format.files import Folder
    from deedbook.workspace.sources import public_key

    place = Path(out)
    if not place.name or not place.parent.is_dir():
        raise click.BadParameter(f"{out!r} names no file in a folder that is there", param_hint="--out")
    with Folder.at(place.parent) as folder:
        if folder.exists(place.name):
            public_key(folder, place.name)


def tell(asked: Asked, keys: "list[VerifierKey]", out: str | None) -> None:
    """Print public keys, and write the first one into the file *out*."""
    if out:
        from deedbook.format.files import Folder

        with Folder.at(Path(out).parent) as folder:
            folder.replace(Path(out).name, f"{keys[0]}\n".encode(), mode=0o644)
        message(f"the public key is in {out}")
    if asked.json:
        listed = [{"name": key.name, "id": key.id, "key": str(key)} for key in keys]
        as_json({"schema_version": "v1", "keys": listed})
    else:
        for key in keys:
            say(str(key))


def _how(name: str, out: str | None) -> None:
    """Say how a principal is declared that signs with the key."""
    file = Path(out).name if out else f"{name}.pub"
    message(f"declare it in .system/deedbook.yaml: principals: {{{name}: {{key: {file}, roles: [approver]}}}}")
    if not out:
        message(f"and write the line above into .system/{file}: deedbook keys show {name} --out .system/{file}")
