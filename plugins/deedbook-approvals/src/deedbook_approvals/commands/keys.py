"""Make and show keys: of approvers, and of the log."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deedbook.cli.common import GlobalOptions, OpenGroup, display_path, json_option
from deedbook.cli.output import as_json, data_command, message, say

from . import completers

if TYPE_CHECKING:
    from deedbook.format.notes import VerifierKey

SECTION: Final = "Proof"
out_option = click.option("--out", metavar="FILE", help="Write the public key into FILE, such as .system/ada.pub.")


@data_command
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
def new(options: GlobalOptions, name: str, out: str | None, *, force: bool) -> int:
    """Create a key NAME (Ed25519), store its private half readable for you alone, and print its public half."""
    from deedbook.approvals.keys import KeyRing

    refuse_place(out)
    ring = KeyRing.of(os.environ)
    replaced = name in ring.names()
    public = ring.create(name, force=force).public
    tell(options, [public], out)
    if replaced:
        message("the previous key is deleted; its signatures stay valid")
        message(f"Workspaces that trust it accept no answer of {name} until they have the new public key")
    message(
        f"the private key is in {display_path(ring.place / name)}; every reader of that file can approve in your name"
    )
    if not options.json:
        _how(name, out)
    return 0


@command.command("show")
@click.argument("name", required=False, shell_complete=completers.keys)
@out_option
@json_option
@click.pass_obj
def show(options: GlobalOptions, name: str | None, out: str | None) -> int:
    """Print the public half of the key NAME, or of all your keys."""
    from deedbook.approvals.keys import KeyRing

    if out and not name:
        raise click.UsageError("--out needs the NAME of one key")
    refuse_place(out)
    ring = KeyRing.of(os.environ)
    found = [ring.load(each).public for each in ([name] if name else ring.names())]
    if not found and not options.json:
        message(f"no keys in {display_path(ring.place)}; make one with: deedbook keys new NAME")
    tell(options, found, out)
    return 0


def refuse_place(out: str | None) -> None:
    """Refuse, before a key is created, an invalid place for its public half: only a public key may be overwritten."""
    if out is None:
        return
    from deedbook.format.files import Folder
    from deedbook.workspace.sources import public_key

    place = Path(out)
    if not place.name or not place.parent.is_dir():
        raise click.BadParameter(f"{out!r} is not a file in an existing folder", param_hint="--out")
    with Folder.at(place.parent) as folder:
        if folder.exists(place.name):
            public_key(folder, place.name)


def tell(options: GlobalOptions, keys: "list[VerifierKey]", out: str | None) -> None:
    """Print public keys, and write the first one into the file *out*."""
    if out:
        from deedbook.format.files import Folder

        with Folder.at(Path(out).parent) as folder:
            folder.replace(Path(out).name, f"{keys[0]}\n".encode(), mode=0o644)
        message(f"the public key is in {out}")
    if options.json:
        listed = [{"name": key.name, "id": key.id, "key": str(key)} for key in keys]
        as_json({"schema_version": "v1", "keys": listed})
    else:
        for key in keys:
            say(str(key))


def _how(name: str, out: str | None) -> None:
    """Explain how to declare a principal that signs with the key."""
    file = Path(out).name if out else f"{name}.pub"
    message(f"declare it in .system/deedbook.yaml: principals: {{{name}: {{key: {file}, roles: [approver]}}}}")
    if not out:
        message(f"and write the line above into .system/{file}: deedbook keys show {name} --out .system/{file}")
