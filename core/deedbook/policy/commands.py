"""Which command lines a pattern such as ``git add:*`` allows; pure.

A pattern has one of three forms: ``git:*`` is the text ``git``, alone or before a space and anything; ``npm run *`` has
a ``*`` for any text; without ``*`` it is the whole command line. With every pattern, the command line is one simple
command: it contains no character with which a shell starts another command, substitutes one, or redirects a file. This
does not limit the command itself: ``git`` can start other programs.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = ":*"

_SHELL: Final = re.compile(r"[;&|<>`$(){}\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]").search
SHELL: Final = "; & | < > ( ) { } $ ` or a line break"
"""The characters that no allowed command line contains, for messages."""


def problem(pattern: str) -> str | None:
    """Return why no command line can ever match *pattern*, or ``None``."""
    if _SHELL(pattern):
        return f"it holds one of {SHELL}, which no allowed command holds"
    if not pattern.removesuffix(PREFIX).strip(" *"):
        return "it names no command"
    return None


def fits(pattern: str, command: Any) -> bool:
    """Return whether *command* is the text of one simple command that matches *pattern*; linear in its length."""
    if type(command) is not str or _SHELL(command) or problem(pattern):
        return False
    if pattern.endswith((PREFIX, " *")) and "*" not in pattern[:-2]:
        return command == pattern[:-2] or command.startswith(f"{pattern[:-2]} ")
    return _matches_glob(pattern.removesuffix(PREFIX) + ("*" if pattern.endswith(PREFIX) else ""), command)


def allowed_abilities(skill: Mapping[str, Any]) -> list[str]:
    """Return what a charter allows a skill: abilities, and abilities with a command pattern."""
    some = skill.get("commands", {}).items()
    patterns = (f"{name}({each})" for name, pointers in some for found in pointers.values() for each in found)
    return sorted([*skill["allowed"], *patterns])


def _matches_glob(pattern: str, text: str) -> bool:
    """Return whether *text* matches *pattern*, in which ``*`` stands for any text."""
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
