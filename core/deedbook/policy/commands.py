"""Which command lines a pattern such as ``git add:*`` allows; pure.

A pattern is one of three: ``git:*`` is the text ``git``, alone or before a space and anything; ``npm run *`` has a
``*`` for any text; what has no ``*`` is the whole command line. Whatever the pattern, the command line is one simple
command: it holds no character with which a shell begins another command, runs one in its place, or redirects a file.
That is not what the command itself may do: ``git`` can start other programs.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = ":*"

_SHELL: Final = re.compile(r"[;&|<>`$(){}\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]").search
SHELL: Final = "; & | < > ( ) { } $ ` or a line break"
"""The characters that no allowed command line holds, for messages."""


def problem(pattern: str) -> str | None:
    """Say why no command line can ever fit *pattern*; ``None`` if one can."""
    if _SHELL(pattern):
        return f"it holds one of {SHELL}, which no allowed command holds"
    if not pattern.removesuffix(PREFIX).strip(" *"):
        return "it names no command"
    return None


def fits(pattern: str, command: Any) -> bool:
    """Say whether *command* is the text of one simple command that fits *pattern*; linear in its length."""
    if type(command) is not str or _SHELL(command) or problem(pattern):
        return False
    if pattern.endswith((PREFIX, " *")) and "*" not in pattern[:-2]:
        return command == pattern[:-2] or command.startswith(f"{pattern[:-2]} ")
    return _globbed(pattern.removesuffix(PREFIX) + ("*" if pattern.endswith(PREFIX) else ""), command)


def allowed_of(skill: Mapping[str, Any]) -> list[str]:
    """Return what a charter says that a skill may use: abilities, and those with a pattern of which it has commands."""
    some = skill.get("commands", {}).items()
    patterns = (f"{name}({each})" for name, said in some for found in said.values() for each in found)
    return sorted([*skill["allowed"], *patterns])


def _globbed(pattern: str, text: str) -> bool:
    """Say whether *text* fits *pattern*, in which ``*`` stands for any text."""
    first, *parts = pattern.split("*")
    if not parts:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    for part in parts[:-1]:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return text.endswith(parts[-1]) and len(text) - len(parts[-1]) >= at
