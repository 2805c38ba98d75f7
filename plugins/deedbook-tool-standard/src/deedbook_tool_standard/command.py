"""The argument vector of ``tool: process``: templates that become a list of strings, and never a shell's text.

Each element of the list is one argument; ``{files...}`` alone in an element becomes one argument for each item. A list
inside the list is a group: where an optional placeholder in it stands for nothing, all of it is left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any

from deedbook.contract import Failed, Object

from .templates import Placeholder, Template, misfits, parse, text_of

LONGEST = 128 * 1024 - 1
"""Bytes that Linux takes as one argument (MAX_ARG_STRLEN, without the NUL)."""
_HOW = 'write a list, one argument each, such as argv: [git, log, "--max-count={count}", --, "{path}"]'
_DASHES = re.compile(r"-*")
_CODE = (
    (re.compile(r"[a-z]*sh|busybox|su|sudo|doas"), re.compile(r"-[A-Za-z]*c|--command=?")),
    (re.compile(r"python[0-9.]*|pypy[0-9.]*"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"(?:perl|ruby|lua|julia|raku)[0-9.]*|Rscript|osascript"), re.compile(r"-[A-Za-z]*[eE]")),
    (re.compile(r"node|nodejs|deno|bun"), re.compile(r"-[A-Za-z]*[ep]|--eval=?|--print=?|eval")),
    (re.compile(r"php[0-9.]*"), re.compile(r"-r|--run=?")),
    (re.compile(r"g?awk|mawk|nawk"), re.compile(r"-e|--source=?")),
)
"""Interpreters, and the option after which they read code."""


@dataclass(frozen=True)
class Element:
    """One entry of the list: its *template*, and whether a value in it may begin with a dash."""

    template: Template
    dashes: bool

    def fill(self, args: Object) -> list[str] | None:
        """Return the arguments that it becomes; ``None`` where an optional placeholder stands for nothing."""
        whole = self.template.whole
        if whole is None or not whole.spread:
            text = self.template.fill(args)
            return None if text is None else [self._check_text(text)]
        found = self.template.values(args)
        if found is None:
            return None
        items = found[whole]
        if not isinstance(items, list):
            raise Failed("ARGUMENT_REFUSED", f"{whole.written}: an array is needed")
        return [self._check_text(text_of(whole, item)) for item in items]

    def _check_text(self, text: str) -> str:
        if not self.template.placeholders:
            return text
        written = self.template.placeholders[0].written
        if text.startswith("-") and not self.dashes and not self.template.prefix:
            why = 'begins with "-" and would be taken for an option'
            raise Failed("ARGUMENT_REFUSED", f"{written}: {text[:40]!r} {why}")
        if len(text.encode()) > LONGEST:
            raise Failed("ARGUMENT_REFUSED", f"{written}: more than {LONGEST} bytes in one argument")
        return text


@dataclass(frozen=True)
class Command:
    """A whole argument vector: groups of elements; most groups have one."""

    groups: tuple[tuple[Element, ...], ...]

    @property
    def program(self) -> str:
        """Return the program's name, for messages."""
        return basename(self.groups[0][0].template.prefix)

    def fill(self, args: Object) -> list[str]:
        """Return the arguments for one call; raises `Failed` with ``ARGUMENT_REFUSED``."""
        made: list[str] = []
        for group in self.groups:
            filled = [element.fill(args) for element in group]
            if None not in filled:
                made.extend(text for part in filled for text in part or ())
        return made


def command(settings: Object) -> Command:
    """Read ``argv``; raises `ValueError` in words for its author."""
    said = settings["argv"]
    if isinstance(said, str):
        raise ValueError(f"argv is one string, and no shell will split it; {_HOW}")  # noqa: TRY004 - it is YAML's fault
    allowed = settings.get("dashes") == "allow"
    groups = []
    for entry in said:
        texts = [entry] if isinstance(entry, str) else entry
        groups.append(tuple(Element(parse(text), allowed) for text in texts))
        allowed = allowed or "--" in texts
    return Command(tuple(groups))


def command_faults(settings: Object, schema: Object) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with ``argv``, each with a JSON pointer into the settings."""
    if isinstance(settings["argv"], str):
        yield "/argv", f"argv is one string, and no shell will split it; {_HOW}"
        return
    before: list[str] = []
    for index, entry in enumerate(settings["argv"]):
        for inner, text in [("", entry)] if isinstance(entry, str) else [(f"/{at}", t) for at, t in enumerate(entry)]:
            for why in _element_faults(text, before, schema, allow=settings.get("dashes") == "allow"):
                yield f"/argv/{index}{inner}", why
            before.append(text)


def _element_faults(text: str, before: Sequence[str], schema: Object, *, allow: bool) -> Iterator[str]:
    try:
        template = parse(text)
    except ValueError as problem:
        yield str(problem)
        return
    if "\0" in text:
        yield "a NUL character cannot be passed to a program"
    if not template.placeholders:
        return
    if not before:
        yield "the program is always written out; placeholders are for its arguments"
    if template.prefix and _DASHES.fullmatch(template.prefix) and not allow and "--" not in before:
        yield f"after {template.prefix!r} alone the value would name the option; write the option out"
    if _is_code(before, template.prefix):
        yield 'the program reads this as code, and a value must not become code; pass it as "$1", or by stdin'
    yield from misfits(template, schema)


def _is_code(before: Sequence[str], prefix: str) -> bool:
    """Return whether the next argument, or what follows *prefix* in it, is read as code by an interpreter."""
    for program, option in _CODE:
        names = [index for index, text in enumerate(before) if program.fullmatch(basename(text))]
        if not names:
            continue
        if option.fullmatch(prefix):
            return True
        told = [index for index, text in enumerate(before) if index > names[0] and option.fullmatch(text)]
        if any(all(text.startswith("-") for text in before[index:]) for index in told):
            return True
    return False


def stdin_faults(settings: Object, schema: Object) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with ``stdin``: it is one placeholder, of any type."""
    said: Any = settings.get("stdin")
    if said is None:
        return
    try:
        alone = parse(said).whole if isinstance(said, str) else None
    except ValueError as problem:
        yield "/stdin", str(problem)
        return
    if alone is None or alone.spread:
        yield "/stdin", 'stdin is one placeholder in quotes, such as "{text}"'
        return
    yield from (("/stdin", why) for why in misfits(Template((alone,)), schema, single=False))


def stdin_of(settings: Object) -> Placeholder | None:
    """Return the placeholder whose value is the program's standard input."""
    said = settings.get("stdin")
    return None if said is None else parse(said).whole
