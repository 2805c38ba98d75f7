"""``deedbook keys``: the keys that approvers sign with, and the key of the workspace's log."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import completing
from .common import Asked, Suggesting, json_option, shown
from .output import as_json, complain, message, say, worded

if TYPE_CHECKING:
    from deedbook.format.notes import VerifierKey

UNSOUND = 4

out_option = click.option("--out", metavar="FILE", help="Write the public key into FILE, such as .system/ada.pub.")


@click.group("keys", cls=Suggesting)
def command() -> None:
    """Make and show the keys that approvers sign with; `rotate` makes the one that signs the workspace's log."""


@command.command("new")
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

    _refuse_place(out)
    ring = KeyRing.of(os.environ)
    replaced = name in ring.names()
    public = ring.create(name, force=force).public
    _tell(asked, [public], out)
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
    _refuse_place(out)
    ring = KeyRing.of(os.environ)
    found = [ring.load(each).public for each in ([name] if name else ring.names())]
    if not found and not asked.json:
        message(f"no keys in {shown(ring.place)}; make one with: deedbook keys new NAME")
    _tell(asked, found, out)
    return 0


@command.command("rotate")
@click.option("--lost", is_flag=True, help="The key that is in force is gone: let the new one come without its word.")
@out_option
@json_option
@click.pass_obj
def rotate(asked: Asked, out: str | None, *, lost: bool) -> int:
    """Make the key that signs this workspace's log, or another in its place, and print its public half.

    From then on checkpoints are written, and the ledgers that are here are covered at once.
    """
    from deedbook.charter.settings import Settings
    from deedbook.format.files import Folder
    from deedbook.kernel import read_workspace
    from deedbook.log.checkpoints.asked import Office
    from deedbook.maintenance.upkeep import own_ledger

    _refuse_place(out)
    workspace = read_workspace(asked.workspace)
    settings = Settings.read(workspace.checkpoints, workspace.root)
    with own_ledger(workspace) as ledger, Folder.at(workspace.state) as state:
        done = Office(state, ledger, settings).rotate(lost=lost)
    _tell(asked, [done.key], out)
    was = f"the key before, {done.before.id}, " if done.before else ""
    if was:
        message(f"{was}{'is lost and has not signed this' if done.lost else 'has signed this and is removed'}")
    message(f"the private key is in {shown(done.where)}; whoever can read it can sign checkpoints of this workspace")
    if not asked.json:
        file = Path(out).name if out else "log.pub"
        message(f"readers trust it by .system/deedbook.yaml: checkpoints: {{keys: [{file}]}}")
    left_out = done.asked.covered.left_out
    for name, why in left_out.items():
        complain(f"session {name} is not covered: {worded(why)}")
    return UNSOUND if left_out else 0


def _refuse_place(out: str | None) -> None:
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


def _tell(asked: Asked, keys: "list[VerifierKey]", out: str | None) -> None:
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
