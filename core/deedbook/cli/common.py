"""What several commands share: who was asked for what, options, and how places are shown."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from . import completing
from .output import message

if TYPE_CHECKING:
    from deedbook.changes import Difference
    from deedbook.charter import Charter
    from deedbook.locks import Opened

_SECTIONS: Final = MappingProxyType({"ability": "abilities", "hook": "hooks", "policy": "policies"})
KINDS: Final = ("tool", "provider", "flow", "hook", "policy", "skill", "pack")
"""The kinds of plugins."""


@attrs.define
class Asked:
    """What was asked for before a command runs: the folder to look from, and whether the answer is to be JSON."""

    workspace: str = "."
    json: bool = False


class Suggesting(click.Group):
    """A group that says which of its commands may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; raises `click.UsageError`."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            from deedbook.schema import suggest

            raise click.UsageError(f"there is no command {args[0]!r}{suggest(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    asked = ctx.find_object(Asked)
    assert asked is not None
    asked.json = asked.json or value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON with a versioned schema."
)
profile_option = click.option(
    "--profile",
    metavar="NAME",
    help="Use this profile instead of the workspace's own.",
    shell_complete=completing.profiles,
)
principal_option = click.option(
    "--as",
    "principal",
    metavar="NAME",
    help="Act for this declared principal.",
    shell_complete=completing.principals,
)

wait_option = click.option(
    "--wait", type=click.FloatRange(0, 86400), default=0.0, metavar="SECONDS",
    help="Wait so long for a person where one has to decide.",
)  # fmt: skip


def announce(opened: "Opened") -> None:
    """Say which skills are set aside, and what changed in the charter since it was last in force."""
    tell_set_aside(opened.charter)
    if opened.previous is None:
        return
    for way, text in news(opened):
        message(f"charter {way}: {text}")


def tell_set_aside(charter: "Charter") -> None:
    """Say which skills cannot be read and are not offered."""
    for why in charter.set_aside:
        message(f"skill set aside: {why}")


def news(opened: "Opened") -> list[tuple[str, str]]:
    """Return what changed, in words, each with its way: ``looser``, ``tighter``, ``changed``.

    That a file changed is said only where nothing else says what changed in it.
    """
    changes = opened.changes
    files = {text.split(" ")[1] for text in changes.other if text.startswith("source ")}
    told = {file for file in files for text in _all(changes) if _is_about(text, file, opened.charter.document)}
    ways = (("looser", changes.looser), ("tighter", changes.tighter), ("changed", changes.other))
    said = [(way, text) for way, texts in ways for text in texts]
    own = [(way, text) for way, text in said if not text.startswith("source ")]
    rest = [text.removeprefix("source ").removesuffix(" changed") for _, text in said if text.startswith("source ")]
    return [*own, *(("changed", text) for text in rest if text.split(" ")[0] not in told)]


def _all(changes: "Difference") -> tuple[str, ...]:
    return (*changes.looser, *changes.tighter, *changes.other)


def _is_about(change: str, file: str, document: Mapping[str, Any]) -> bool:
    """Say whether *change* is about something that stands in *file*, or did."""
    noun, _, rest = change.partition(" ")
    name = rest.partition(" ")[0].removesuffix(":")
    if noun in _SECTIONS:
        place = document[_SECTIONS[noun]].get(name, {}).get("place", "")
        return place.startswith(f"{file}:") if place else name == Path(file).stem
    if noun in ("skill", "role"):
        return name in (Path(file).stem, Path(file).parent.name)
    return file == ".system/deedbook.yaml" and noun not in ("source", "plugin", "kernel:", "first")


def shown(place: Path) -> str:
    """Return *place* relative to the present folder if it is below it."""
    with suppress(OSError):  # the present folder may be gone
        here = Path.cwd()
        if place.is_relative_to(here):
            return str(place.relative_to(here))
    return str(place)


def read_arguments(text: str) -> Any:
    """Return the JSON of ``--args`` (``-``: of standard input); large integers are for the ability to refuse.

    Raises `click.BadParameter` for what is no JSON.
    """
    from deedbook.canonical import parse
    from deedbook.errors import IntakeError

    try:
        raw = _read() if text == "-" else text.encode()
        parse(raw, big_integers="string")
        return json.loads(raw)
    except IntakeError as problem:
        raise click.BadParameter(str(problem), param_hint="--args") from None
    except UnicodeEncodeError:
        raise click.BadParameter("not UTF-8", param_hint="--args") from None


def _read() -> bytes:
    from deedbook.canonical import MAX_BYTES

    return sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""
