"""The changes to a workspace that ``deedbook adopt`` makes: planned as texts, shown, then written together."""

from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DomainError, SourceError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.plugins.plugins import discover
from deedbook.workspace.documents import Document, parse_yaml
from deedbook.workspace.sources import MAX_BYTES
from deedbook.workspace.workspace import survey_workspace
from deedbook_author.yaml_edits import add_member
from deedbook_guard.agent_tools import ToolDescription

from .declarations import compare

SETTINGS: Final = ".system/deedbook.yaml"
_IGNORED: Final = ".gitignore"
_STATE: Final = ".deedbook/"
_READABLE: Final = 0o644
_NEW: Final = """\
# `deedbook adopt` wrote this. Change what you like: the next run adds what is missing, and changes nothing else.
# The effects of tools are guessed: write, unless a tool says that it only reads.
schema_version: v1
# Before you write enforce, name this workspace in the program: guard(NAME, workspace=…). Otherwise no policy is in
# force if the program starts in another folder.
enforcement: observe    # records what policies decide; write enforce, and their decisions bind
"""
_POLICY: Final = """\
# `deedbook adopt` wrote this. It allows every call; the ledger has each decision. The first rule that fits decides:
# put yours before the others, such as {{match: {{abilities: [{example}]}}, then: deny, reason: not yet}}.
schema_version: v1
id: {program}
kind: rules
match: {{kind: [tool, model], abilities: ["{program}/*"]}}
rules:
  - {{match: {{kind: model}}, then: allow, reason: models may be asked}}
default: allow
"""


@attrs.frozen
class FileChange:
    """A file of the workspace: its *path* below the root, its text *before* (``None``: it is new) and *after*."""

    path: str
    before: str | None
    after: str


def plan(root: Path, program: str, tools: Sequence[ToolDescription]) -> tuple[list[FileChange], list[str]]:
    """Return the changes that declare a program's tools in the workspace at *root*, and notes for a person.

    Without a workspace there, the changes make one that observes. Raises `DeedbookError`, with every conflict.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(Folder.at(root))
        before = _read(folder, SETTINGS)
        text = before if before is not None else _NEW
        document = parse_yaml(text.encode(), SETTINGS)
        settings: Any = document.value
        found = compare(settings, program, tools)
        raise_all(SourceError, (_conflict(document, each.path, each.why) for each in found.conflicts))
        for addition in found.additions:
            text = add_member(text, addition.parent, addition.key, addition.value, SETTINGS)
        changes = [FileChange(SETTINGS, before, text)]
        if program not in settings.get("agents", {}):
            changes += _policy(root, folder, program, tools)
        if before is None:
            changes += _ignore_state(folder)
    return [each for each in changes if each.before != each.after], found.notes


def write(root: Path, changes: Sequence[FileChange]) -> None:
    """Write the changes; take them back if they make a fault in the workspace. Raises `DeedbookError`."""
    old = {error.message for error in survey_workspace(root)[1]} if (root / SETTINGS).exists() else set()
    with Folder.at(root) as folder:
        written: list[tuple[FileChange, str]] = []
        try:
            for each in changes:
                expected = "" if each.before is None else sha256(each.before.encode()).hexdigest()
                digest = folder.replace(each.path, each.after.encode(), expected=expected, mode=_READABLE)
                written.append((each, digest))
            raise_all(SourceError, (error for error in survey_workspace(root)[1] if error.message not in old))
        except BaseException:
            for each, digest in reversed(written):
                if each.before is None:
                    folder.remove(each.path, expected=digest)
                else:
                    folder.replace(each.path, each.before.encode(), expected=digest)
            raise


def _read(folder: Folder, path: str) -> str | None:
    """Return a file's text; ``None`` if there is none."""
    if not folder.exists(path):
        return None
    try:
        return folder.read(path, limit=MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise SourceError(fault("SOURCE_INVALID", "is not UTF-8", place=path)) from None


def _conflict(document: Document, path: tuple[str, ...], why: str) -> DomainError:
    """Return the error for what a person, or an earlier run, wrote otherwise."""
    todo = "nothing was written; correct it, or remove it and run `deedbook adopt` again"
    return fault("SOURCE_INVALID", f"{why}; {todo}", place=document.place(join_pointer(*path), key=True))


def _policy(root: Path, folder: Folder, program: str, tools: Sequence[ToolDescription]) -> list[FileChange]:
    """Return the file of a policy that allows everything, unless there is a policy of that name."""
    path = f".system/policies/{program}.yaml"
    there = survey_workspace(root)[0] if folder.exists(SETTINGS) else None
    if folder.exists(path) or (there is not None and program in there.policies):
        return []
    discover().find("policy", "rules", path)
    example = f"{program}/{next((tool.name for tool in tools), 'TOOL')}"
    return [FileChange(path, None, _POLICY.format(program=program, example=example))]


def _ignore_state(folder: Folder) -> list[FileChange]:
    """Return the change that keeps the state of a new workspace out of git."""
    before = _read(folder, _IGNORED)
    if _STATE in (before or "").split():
        return []
    start = before if not before or before.endswith("\n") else f"{before}\n"
    return [FileChange(_IGNORED, before, f"{start or ''}{_STATE}\n")]
