"""Create a workspace: one file, or the whole starter, with schemas for editors."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from deedbook.format.errors import SourceError, fault
from deedbook.format.files import Folder
from deedbook.format.schema import data_folder
from deedbook.plugins.plugins import discover
from deedbook.workspace.sources import SYSTEM

STARTER: Final = Path(__file__).with_name("data") / "starter"
"""The ``.system`` of a full workspace."""
EDITORS: Final = "schemas"
"""The folder below ``.system`` that holds JSON Schemas for editors; the kernel uses its own."""
STATE: Final = ".deedbook/"
IGNORED: Final = ".gitignore"
MAX_BYTES: Final = 1024 * 1024

_MINIMAL: Final = """\
schema_version: v1
enforcement: enforce          # observe: record what policies would have decided, without binding
lock: auto                    # required: refuse to start when a file changed since `deedbook lock`
abilities:
  echo: {summary: Echo a text back., handler: {tool: echo}}
  file-read: {summary: Read a text file of the workspace., handler: {tool: file-read}}
  file-write: {summary: Write a whole file of the workspace., handler: {tool: file-write}}
policies:
  baseline:
    kind: rules
    rules:
      - {match: {effects: [none, read]}, then: allow, reason: it changes nothing}
      - {match: {abilities: [file-write], args: {/path: {under: [reports]}}}, then: allow, reason: reports are ours}
    default: deny
seal: [{detect: card}, {detect: secret}]    # kept beside the ledger by salted digest
"""
_WITH_PACKS: Final = """\
schema_version: v1
enforcement: enforce          # observe: record what policies would have decided, without binding
lock: auto                    # required: refuse to start when a file changed since `deedbook lock`
packs: [{packs}]    # policies of installed packs; add your own in .system/policies
abilities:
  echo: {{summary: Echo a text back., handler: {{tool: echo}}}}
  file-read: {{summary: Read a text file of the workspace., handler: {{tool: file-read}}}}
  file-write: {{summary: Write a whole file of the workspace., handler: {{tool: file-write}}}}
seal: [{{detect: card}}, {{detect: secret}}]    # kept beside the ledger by salted digest
"""
_FORMS: Final = {
    "deedbook.yaml": "deedbook_v1",
    "hooks": "hook_v1",
    "policies": "policy_v1",
    "registry": "ability_v1",
    "hooks.test": "hook_test_v1",
    "policies.test": "policy_test_v2",
}
"""The schema of a YAML file, by its place below ``.system``; ``.test`` for the tests beside it."""


def create_workspace(folder: Path, *, full: bool, packs: Sequence[str] = ()) -> list[str]:
    """Make *folder* a workspace and return the files written; raises `SourceError` if it is one already.

    Either all files are written or none. With *full* it is a copy of `STARTER`: roles, skills, hooks,
    tools, a policy with tests; otherwise one file. It names the *packs*, which must be installed (`BindingError`).
    Without *full*, they bring its policies.
    """
    named = tuple(dict.fromkeys(packs))
    for name in named:
        _find_pack(name)
    system = folder / SYSTEM
    if system.exists() or system.is_symlink():
        why = "exists already; nothing was changed; `deedbook init --schemas` renews the schemas for editors"
        raise SourceError(fault("USAGE", why, place=str(system)))
    _refuse_link(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{SYSTEM}-", dir=folder))
    except OSError as problem:
        why = f"cannot be written: {problem.strerror or problem}; name another folder: deedbook init FOLDER"
        raise SourceError(fault("SOURCE_INVALID", why, place=str(folder.absolute()))) from None
    try:
        made = draft / SYSTEM
        if full:
            shutil.copytree(STARTER, made)
        else:
            made.mkdir()
        _write_settings(made / "deedbook.yaml", named, full=full)
        _add_modelines(made)
        _write_schemas(made)
        made.rename(system)
    finally:
        shutil.rmtree(draft)
    return [*sorted(str(path.relative_to(folder)) for path in _files(system)), *_ignore_state(folder)]


def _find_pack(name: str) -> None:
    """Raise `BindingError` if no installed distribution has the pack *name*, or if two have it."""
    discover().find("pack", name)


def _write_settings(path: Path, packs: Sequence[str], *, full: bool) -> None:
    """Write the settings, or add the *packs* to those of the starter."""
    if full:
        listed = f"packs: [{', '.join(packs)}]\n" if packs else ""
        text = path.read_text(encoding="utf-8") + listed
    else:
        text = _WITH_PACKS.format(packs=", ".join(packs)) if packs else _MINIMAL
    path.write_text(text, encoding="utf-8")


def renew_schemas(root: Path) -> list[str]:
    """Rewrite the schemas for editors of the workspace at *root*; return the files written."""
    return [str(path.relative_to(root)) for path in _write_schemas(root / SYSTEM)]


def format_modelines(path: Path, system: Path) -> str:
    """Return the comments by which editors find the schema of the YAML file at *path*; empty if it has none."""
    place = path.relative_to(system)
    tested = ".test" if path.name.endswith(".test.yaml") else ""
    form = _FORMS.get(f"{place.parts[0]}{tested}")
    if form is None or not (data_folder(EDITORS) / f"{form}.json").exists():
        return ""
    reached = f"{'../' * (len(place.parts) - 1)}{EDITORS}/{form}.json"
    return f"# yaml-language-server: $schema={reached}\n# $schema: {reached}\n"


def _add_modelines(system: Path) -> None:
    for path in system.rglob("*.yaml"):
        path.write_text(format_modelines(path, system) + path.read_text(encoding="utf-8"), encoding="utf-8")


def _write_schemas(system: Path) -> list[Path]:
    """Write the schemas; refuse links, whose author could choose which file is overwritten."""
    written = []
    with Folder.at(system) as folder:
        for form in sorted(_FORMS.values()):
            source = data_folder(EDITORS) / f"{form}.json"
            if source.exists():
                folder.replace(f"{EDITORS}/{source.name}", source.read_bytes(), mode=0o644)
                written.append(system / EDITORS / source.name)
    return written


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _ignore_state(folder: Path) -> list[str]:
    """Add the state folder to ``.gitignore``; return the file if it was written."""
    with Folder.at(folder) as held:
        before = held.read(IGNORED, limit=MAX_BYTES) if held.exists(IGNORED) else b""
        if STATE.encode() in before.split():
            return []
        separate = b"" if before.endswith(b"\n") or not before else b"\n"
        held.replace(IGNORED, before + separate + STATE.encode() + b"\n", mode=0o644)
    return [IGNORED]


def _refuse_link(folder: Path) -> None:
    """Refuse at the beginning what could not be written at the end."""
    if folder.is_dir():
        with Folder.at(folder) as held:
            if held.exists(IGNORED):
                held.read(IGNORED, limit=MAX_BYTES)
