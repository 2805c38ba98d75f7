"""What several commands share: global options, parameters, reading of arguments, and the format of places."""

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click.core import ParameterSource

from . import completing
from .output import data_command, is_data_command, is_terminal, message, reserve_stdout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from deedbook.charter.locks import ActiveCharter
    from deedbook.plugins.commands import OfferedCommand
    from deedbook.policy.charter import Charter
    from deedbook.workspace.declarations import Workspace

_SECTIONS: Final = MappingProxyType({"ability": "abilities", "hook": "hooks", "policy": "policies"})
_TEXTS: Final = frozenset(
    {"note", "pointer", "prompt", "prompts", "reason", "removes", "said", "sets", "facts", "text", "value"}
)
"""Parameters that hold a text, which may be empty, or JSON, which has its own check."""
EMPTY: Final = "it is empty; name something, or leave it out"
"""The error for a parameter that is an empty text."""


class GlobalOptions:
    """The options of all commands: the folder to search from, and whether to print JSON.

    It has no attrs class: importing attrs takes a quarter of the time of ``deedbook --help``.
    """

    __slots__ = ("json", "workspace")

    def __init__(self, workspace: str = ".", *, json: bool = False) -> None:
        self.workspace = workspace
        self.json = json


class CommandContext(click.Context):
    """Runs a command: only texts may be empty, and a data command has standard output to itself."""

    def invoke(self, callback: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run *callback*; raises `click.BadParameter` for an empty value."""
        own_callback = self.command.callback
        if own_callback is None or callback is not own_callback:
            return super().invoke(callback, *args, **kwargs)
        for param in self.command.params:
            self._refuse_empty(param)
        with reserve_stdout() if is_data_command(self.command) else nullcontext():
            return super().invoke(callback, *args, **kwargs)

    def _refuse_empty(self, param: click.Parameter) -> None:
        """Refuse an empty name: it would count as missing, and the command would do something else than was asked."""
        name = param.name or ""
        given = self.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
        value = self.params.get(name)
        if given and name not in _TEXTS and "" in (value if isinstance(value, tuple) else (value,)):
            raise click.BadParameter(EMPTY, ctx=self, param=param)


class SuggestingGroup(click.Group):
    """A group that suggests similar commands for an unknown one."""

    context_class = CommandContext

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; raises `click.UsageError`."""
        name, *rest = args
        command = self.get_command(ctx, name)
        if command is None:  # only now list the installed commands
            raise click.UsageError(self.explain_missing(name, self.list_commands(ctx)), ctx)
        command.context_class = CommandContext
        if is_data_command(self) and not self.is_external(name):
            data_command(command)
        return name, command, rest

    def is_external(self, name: str) -> bool:
        """Return whether another distribution provides the subcommand *name*."""
        return False

    def explain_missing(self, name: str, known: list[str]) -> str:
        """Return what to do about an unknown command: install its distribution, or correct the name."""
        from deedbook.format.schema import suggest
        from deedbook.plugins.plugins import known_owners

        owner = known_owners("command").get(f"{self.prefix}{name}")
        if owner:
            return f"the command {name!r} is in {owner}, which is not installed: pip install {owner}"
        alone = name == "list" and self.invoke_without_command
        path = click.get_current_context().command_path
        return f"there is no command {name!r}{f'; `{path}` by itself lists them' if alone else suggest(name, known)}"

    @property
    def prefix(self) -> str:
        """The prefix of entry points that are subcommands of this group."""
        return f"{self.name}."


class OpenGroup(SuggestingGroup):
    """A group of commands that distributions add to: an entry point ``GROUP.NAME`` is the subcommand ``NAME``.

    The group's own subcommands win over those of distributions.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in self.external_commands() if name not in own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the group's own subcommand of that name, or that of a distribution."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        offered = self.external_commands().get(cmd_name)
        return as_command(offered) if offered else None

    def is_external(self, name: str) -> bool:
        """Return whether another distribution provides the subcommand *name*."""
        return name not in self.commands

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line of help for each subcommand; where there is none, for those that could be installed."""
        own = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        offered = {name: each.describe().line for name, each in self.external_commands().items()}
        if lines := {**offered, **own} or self._missing_commands():
            with formatter.section("Commands"):
                formatter.write_dl(list(lines.items()))

    def _missing_commands(self) -> dict[str, str]:
        from deedbook.plugins.plugins import known_owners

        known = {name: owner for name, owner in known_owners("command").items() if name.startswith(self.prefix)}
        return {name.removeprefix(self.prefix): f"not installed: pip install {known[name]}" for name in sorted(known)}

    def external_commands(self) -> dict[str, "OfferedCommand"]:
        """Return the subcommands of other distributions, by name."""
        from deedbook.plugins.commands import find_commands

        prefix = self.prefix
        return {name.removeprefix(prefix): each for name, each in find_commands().items() if name.startswith(prefix)}


def as_command(offered: "OfferedCommand") -> click.Command:
    """Return the click command of a distribution; raises `BindingError` if it is none."""
    command = offered.load()
    if not isinstance(command, click.Command):
        from deedbook.format.errors import BindingError, fault

        why = f"{offered.owners[0]} offers {offered.targets[0]} as a command, which is no click command"
        raise BindingError(fault("PLUGIN_BROKEN", why))
    _apply_context(command)
    return command


def _apply_context(command: click.Command) -> None:
    """Make a command of a distribution, and all its subcommands, refuse empty values like the kernel's own."""
    command.context_class = CommandContext
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _apply_context(each)


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    asked = ctx.find_object(GlobalOptions)
    assert asked is not None
    asked.json = asked.json or value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_set_json, help="Print JSON with a versioned schema."
)
profile_option = click.option(
    "--profile",
    metavar="NAME",
    help="Use this profile instead of the workspace's own.",
    shell_complete=completing.profiles,
)
principal_option = click.option(
    "--as", "principal", metavar="NAME", help="Act for this declared principal.", shell_complete=completing.principals
)

span_option = click.option(
    "--span", metavar="EVENT", help="Only this event, named by its seq or its span, and all that it caused."
)
args_option = click.option(
    "--args", "text", metavar="JSON", help="The arguments as JSON; `-` reads standard input, `@FILE` a file."
)
pairs_argument = click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")

wait_option = click.option(
    "--wait", type=click.FloatRange(0, 86400), default=0.0, metavar="SECONDS",
    help="Wait up to SECONDS for a person's decision.",
)  # fmt: skip


def announce(opened: "ActiveCharter") -> None:
    """Report skills set aside, unknown names in policies, and what changed since the last charter."""
    from deedbook.policy.fitting import find_unknown_names

    report_set_aside(opened.charter)
    for each in find_unknown_names(opened.charter.document, patterns=opened.previous != opened.charter.digest):
        message(f"{each.place}: {each}")
    if opened.previous is None:
        return
    said = describe_changes(opened)
    profile = next((text for _, text in said if text.startswith("profile: ")), "")
    if profile and not any(text.startswith("source ") for text in opened.changes.other):
        shown = [(way, text) for way, text in said if way == "looser"]  # the other changes follow from the profile
        said = [*shown, ("changed", f"{profile}, with {len(said) - len(shown) - 1} changes of its own")]
    for way, text in said:
        message(f"charter {way}: {text}")


def report_set_aside(charter: "Charter") -> None:
    """Report the skills that cannot be read and are not offered."""
    for why in charter.set_aside:
        message(f"skill set aside: {why}")


def describe_changes(opened: "ActiveCharter") -> list[tuple[str, str]]:
    """Return the changes as texts, each with its kind: ``looser``, ``tighter`` or ``changed``.

    A changed file is listed only if no other change explains it.
    """
    changes = opened.changes
    files = {text.split(" ")[1] for text in changes.other if text.startswith("source ")}
    ways = (("looser", changes.looser), ("tighter", changes.tighter), ("changed", changes.other))
    said = [(way, text) for way, texts in ways for text in texts]
    told = {file for file in files for _, text in said if _is_about(text, file, opened.charter.document)}
    own = [(way, text) for way, text in said if not text.startswith("source ")]
    rest = [text.removeprefix("source ").removesuffix(" changed") for _, text in said if text.startswith("source ")]
    return [*own, *(("changed", text) for text in rest if text.split(" ")[0] not in told)]


def _is_about(change: str, file: str, document: Mapping[str, Any]) -> bool:
    """Return whether *change* concerns a definition in *file*, now or before."""
    from pathlib import Path

    noun, _, rest = change.partition(" ")
    name = rest.partition(" ")[0].removesuffix(":")
    if noun in _SECTIONS:
        place = document[_SECTIONS[noun]].get(name, {}).get("place", "")
        return place.startswith(f"{file}:") if place else name == Path(file).stem
    if noun in ("skill", "role"):
        return name in (Path(file).stem, Path(file).parent.name)
    return file == ".system/deedbook.yaml" and noun not in ("source", "plugin", "kernel:", "first")


def display_path(place: "Path") -> str:
    """Return *place* relative to the current folder if it is below it."""
    from pathlib import Path

    with suppress(OSError):  # the current folder may be deleted
        here = Path.cwd()
        if place.is_relative_to(here):
            return str(place.relative_to(here))
    return str(place)


class RefusedJson(click.BadParameter):
    """JSON on the command line that intake refuses; *is_text* if it is not JSON at all."""

    code = "INTAKE_REFUSED"

    def __init__(self, message: str, option: str, *, is_text: bool = False) -> None:
        super().__init__(message, param_hint=option)
        self.is_text = is_text


def read_json(
    raw: bytes | str, option: str, *, hint: str = "", big_integers: Literal["refuse", "keep"] = "refuse"
) -> Any:
    """Return the value of JSON given as *option*; *hint* explains how to write text that is not JSON.

    Raises `RefusedJson`.
    """
    from deedbook.format.canonical import parse
    from deedbook.format.errors import IntakeError, NotJsonError

    try:
        return parse(os.fsencode(raw), big_integers=big_integers)
    except IntakeError as problem:
        is_text = isinstance(problem, NotJsonError)
        raise RefusedJson(f"{problem}; {hint}" if hint and is_text else str(problem), option, is_text=is_text) from None


def read_arguments(text: str, option: str = "--args") -> Any:
    """Return the JSON of ``--args`` (``-``: from standard input, ``@FILE``: from a file).

    Large integers are left for the ability to check. Raises `RefusedJson`, and `click.BadParameter` for a bad file.
    """
    if text.startswith("@"):
        return read_json(_read_file(text[1:], option), f"{option} {text}", big_integers="keep")
    return read_json(_read() if text == "-" else text, option, big_integers="keep")


def read_pairs(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return arguments given as words: ``KEY=TEXT`` is a string, ``KEY:=JSON`` any JSON.

    Raises `click.BadParameter` for a word that is neither, or a key that is given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        name = key.removesuffix(":")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is neither KEY=TEXT nor KEY:=JSON", param_hint="KEY=VALUE")
        if name in found:
            raise click.BadParameter(f"the key {name!r} is given twice", param_hint="KEY=VALUE")
        found[name] = read_json(text, name, big_integers="keep") if key.endswith(":") else text
    return found


def parse_arguments(text: str | None, pairs: tuple[str, ...]) -> Any:
    """Return the arguments of a call, given as ``--args`` or as words; an empty object if there are none."""
    if text is not None and pairs:
        raise click.UsageError("give the arguments once: as --args JSON, or as KEY=VALUE words")
    return read_pairs(pairs) if text is None else read_arguments(text)


def suggest_json_words(pairs: tuple[str, ...], violations: "Iterable[Mapping[str, str]]") -> "Iterator[str]":
    """Yield a hint for each word ``KEY=TEXT`` whose string violates a schema: it was probably meant as JSON."""
    wrong = {each["path"].removeprefix("$.") for each in violations if each["message"].endswith("found string")}
    for name, text in (pair.split("=", 1) for pair in pairs):
        if name in wrong:
            yield f"{name}={text} gives a string; {name}:={text} gives JSON"


def _read_file(path: str, option: str) -> bytes:
    from pathlib import Path

    from deedbook.format.canonical import MAX_BYTES

    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as problem:
        why = f"{path} cannot be read: {problem.strerror or problem}"
        raise click.BadParameter(why, param_hint=option) from None


def _read() -> bytes:
    from deedbook.format.canonical import MAX_BYTES

    return sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""


def confirm(question: str, *, yes: bool) -> bool:
    """Return whether a person confirms *question*; *yes* skips it. Without a terminal, *yes* is required."""
    if yes:
        return True
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"{question} There is no terminal to ask on; add --yes")
    return click.confirm(question, err=True)


def survey(path: str) -> "Workspace":
    """Return the workspace at or above *path*, even with faults; raises `SourceError` without readable settings."""
    from pathlib import Path

    from deedbook.format.errors import SourceError
    from deedbook.workspace.sources import find_workspace
    from deedbook.workspace.workspace import survey_workspace

    workspace, faults = survey_workspace(find_workspace(Path(path)))
    if workspace is None:
        raise SourceError(*faults)
    return workspace
