"""Be a witness for logs: cosign what goes on from what was seen."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, display_path, json_option
from deedbook.cli.output import as_json, data_command, message, say

SECTION: Final = "Proof"

_PORT: Final = re.compile("[0-9]{1,5}")

if TYPE_CHECKING:
    from deedbook.format.notes import VerifierKey
    from deedbook_log.witnessing.store import WitnessStore

store_option = click.option(
    "--store", "place", metavar="DIR",
    help="Where the witness keeps its key and what it knows (default: $XDG_STATE_HOME/deedbook/witness).",
)  # fmt: skip


@data_command
@click.group("witness", cls=SuggestingGroup)
def command() -> None:
    """Be a witness for logs: store the state of each, and cosign only its extensions. Needs no workspace."""


@command.command("new", short_help="Make a witness NAME with a key of its own.")
@click.argument("name")
@store_option
@json_option
@click.pass_obj
def new(asked: GlobalOptions, name: str, place: str | None) -> int:
    """Make a witness NAME with a key of its own, which stays in its store, and print the key's public half.

    The best name is a URL without its scheme, such as witness.example.com/w1.
    """
    from deedbook_log.witnessing.store import WitnessStore

    store = WitnessStore.create(_find_store(place), name)
    message(
        f"the witness's key and what it knows are in {display_path(store.place)}; a copy of it could be made to go back"
    )
    _print_witness(asked, store)
    return 0


@command.command("show", short_help="Print the witness's public key, and the logs that it serves.")
@store_option
@json_option
@click.pass_obj
def show(asked: GlobalOptions, place: str | None) -> int:
    """Print the witness's public key, and the logs it serves with the size that it cosigned last."""
    from deedbook_log.witnessing.store import WitnessStore

    _print_witness(asked, WitnessStore(_find_store(place)))
    return 0


@command.command("trust", short_help="Serve the log whose checkpoints LOGKEY signs.")
@click.argument("logkey")
@click.option(
    "--origin", metavar="TEXT", help="The first line of the log's checkpoints, where it is not its key's name."
)
@store_option
@click.pass_obj
def trust(_: GlobalOptions, logkey: str, origin: str | None, place: str | None) -> int:
    """Serve the log whose checkpoints LOGKEY signs: a key, a file that holds one, or a signed change of keys.

    A log may have several keys. A change of keys counts if a trusted key signed it.
    """
    from deedbook_log.witnessing.store import WitnessStore

    store = WitnessStore(_find_store(place))
    key, origin = _read_key(store, logkey, origin)
    log = store.trust(origin, key)
    message(f"{log.origin}: {len(log.keys)} key{'' if len(log.keys) == 1 else 's'}")
    return 0


@command.command("serve", short_help="Answer over HTTP (C2SP's tlog-witness).")
@click.option("--listen", default="127.0.0.1:8098", show_default=True, metavar="HOST:PORT", help="Where to answer.")
@store_option
@click.pass_obj
def serve(_: GlobalOptions, listen: str, place: str | None) -> int:
    """Answer over HTTP by C2SP's tlog-witness protocol, until SIGTERM or Ctrl-C."""
    from deedbook_log.witnessing.store import WitnessStore
    from deedbook_log.witnessing.witness import Witness
    from deedbook_log.witnessing.witness_server import WitnessServer

    host, _colon, port = listen.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise click.BadParameter(f"{listen!r} is no HOST:PORT", param_hint="--listen")
    witness = Witness(WitnessStore(_find_store(place)))
    with WitnessServer(witness, host.strip("[]"), int(port), report=message) as server:
        message(f"answers at {server.url}")
        _run_until_stopped(server.serve_forever)
    return 0


@command.command("watch", short_help="Answer requests that stand as files in FOLDER.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--once", is_flag=True, help="Answer what is asked now, and end.")
@store_option
@click.pass_obj
def watch(_: GlobalOptions, folder: str, place: str | None, *, once: bool) -> int:
    """Answer requests that are files in FOLDER, from another user of this machine or over a shared mount."""
    from deedbook_log.witnessing.store import WitnessStore
    from deedbook_log.witnessing.witness import Witness
    from deedbook_log.witnessing.witness_folder import WitnessFolder

    inbox = WitnessFolder(Witness(WitnessStore(_find_store(place))), Path(folder), report=message)
    if once:
        inbox.answer_requests()
    else:
        _run_until_stopped(inbox.watch)
    return 0


def _run_until_stopped(work: Callable[[], Any]) -> None:
    """Run until a signal stops the program."""
    with suppress(KeyboardInterrupt):
        for _ in work() or ():
            pass


def _find_store(place: str | None) -> Path:
    if place:
        return Path(place)
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base.startswith("/") else Path(os.environ.get("HOME", "") or "/") / ".local" / "state"
    return root / "deedbook" / "witness"


def _read_key(store: "WitnessStore", given: str, origin: str | None) -> "tuple[VerifierKey, str]":
    """Return the key in *given*, and the log's origin."""
    from deedbook.format.errors import SignatureError, fault
    from deedbook.format.notes import MAX_TEXT, Note, VerifierKey
    from deedbook_audit.transparency.rotation import Rotation

    text = given
    if "+" not in given or os.path.lexists(given):
        from deedbook.format.files import Folder

        with Folder.at(Path(given).parent) as folder:
            text = folder.read(Path(given).name, limit=MAX_TEXT).decode(errors="replace")
    if "\n\n" not in text:
        key = VerifierKey.parse(text.strip())
        return key, origin or key.name
    change = Rotation.parse(Note.parse(text))
    log = store.find_log(change.origin)
    if log is None or not any(map(change.is_signed_by, log.keys)):
        why = f"no key that is trusted for {change.origin} signed this change of keys; trust the new key by itself"
        raise SignatureError(fault("KEY_REFUSED", why))
    return change.key, change.origin


def _print_witness(asked: GlobalOptions, store: "WitnessStore") -> None:
    from deedbook.format.checkpoints import Checkpoint
    from deedbook.format.terminal import plain
    from deedbook_audit.transparency.witness_requests import origin_hash

    checkpoints = [(log, store.read_newest(origin_hash(log.origin))) for log in store.list_logs()]
    sizes = [(log, Checkpoint.parse(note.text).size if note else 0) for log, note in checkpoints]
    if asked.json:
        logs = [{"origin": log.origin, "keys": list(map(str, log.keys)), "size": size} for log, size in sizes]
        as_json({"schema_version": "v1", "key": str(store.key.public), "logs": logs})
        return
    say(str(store.key.public))
    for log, size in sizes:
        keys = "1 key" if len(log.keys) == 1 else f"{len(log.keys)} keys"
        say(plain(f"{log.origin}: cosigned up to {size}, {keys}"))
