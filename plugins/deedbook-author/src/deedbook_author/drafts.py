"""Create a plugin from the templates: a distribution with a test and a workspace that uses it."""

import keyword
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Final

import attrs

from deedbook.contract import plugins as contracts
from deedbook.format.errors import SourceError, fault
from deedbook.plugins.groups import ENTRY_POINTS

TEMPLATES: Final = Path(__file__).with_name("data") / "templates"
"""The files of new plugins, a folder for each kind; `all` for every kind."""
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""Valid names of plugins: lower-case words joined by hyphens."""
_LONGEST: Final = 60
_TAKEN: Final = ("Any", "FeatureSpec", "Iterator", "Path")
_ENDING: Final = ".tmpl"
_ABOUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tool": "counts the words of a text.",
        "provider": "answers with what its settings say.",
        "flow": "lets the lead answer, once.",
        "hook": "keeps forbidden words out of calls.",
        "policy": "lets an ability be used so often, and then asks.",
        "skill": "reads skills from one JSON file.",
        "pack": "a policy for tools.",
        "feature": "counts the calls of each session.",
    }
)
_TRIALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tool": """call $name --args '{"text": "three short words"}'""",
        "provider": """call model/standard --args '{"messages": [{"role": "user", "content": "hi"}], "model": "mine", "schema_version": "v2"}'""",  # noqa: E501 - one command
        "flow": 'run "Say hello"',
        "hook": """call echo --args '{"text": "my password"}'""",
        "policy": """call echo --args '{"text": "hi"}'""",
        "skill": "skills",
        "pack": """call echo --args '{"text": "hi"}'""",
        "feature": """call echo --args '{"text": "hi"}' && deedbook -C $folder/example tree last""",
    }
)
"""A command that tries a plugin of the kind, in the workspace that comes with it."""


@attrs.frozen
class Draft:
    """A new plugin: its *folder*, the *files* in it, and the *commands* to run next."""

    folder: Path
    files: tuple[str, ...]
    commands: tuple[str, ...]


def create_plugin(kind: str, name: str, into: Path) -> Draft:
    """Write the distribution ``deedbook-<kind>-<name>`` below *into*, complete or not at all.

    Raises `SourceError` for an invalid name and for a folder that exists already.
    """
    _check(kind, name)
    words = _words(kind, name)
    folder = into / words["distribution"]
    if folder.exists() or folder.is_symlink():
        raise SourceError(fault("USAGE", "exists already; nothing was changed", place=str(folder)))
    into.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=into))
    try:
        made = draft / folder.name
        for part in ("all", kind):
            _fill(TEMPLATES / part, made, words)
        made.rename(folder)
    finally:
        shutil.rmtree(draft)
    files = tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    trial = Template(_TRIALS[kind]).substitute(words, folder=folder)
    commands = (f"pip install -e {folder}", f"pytest {folder}", f"deedbook -C {folder}/example {trial}")
    return Draft(folder, files, commands)


def _check(kind: str, name: str) -> None:
    if not NAME.fullmatch(name) or len(name) > _LONGEST:
        why = f"{name!r} is not a valid plugin name; use lower-case words joined by hyphens, such as word-count"
        raise SourceError(fault("USAGE", why))
    if name.startswith(("deedbook-", f"{kind}-")):
        why = f"leave the prefix out: the distribution becomes deedbook-{kind}-{_bare(kind, name)}"
        raise SourceError(fault("USAGE", f"{name!r}: {why}"))


def _bare(kind: str, name: str) -> str:
    return name.removeprefix("deedbook-").removeprefix(f"{kind}-")


def _words(kind: str, name: str) -> dict[str, str]:
    """Return the values of the placeholders in the templates."""
    module = f"deedbook_{kind}_{name.replace('-', '_')}"
    made = "".join(word.capitalize() for word in name.split("-"))
    if keyword.iskeyword(made) or hasattr(contracts, made) or made in _TAKEN:
        made = f"{made}Plugin"
    return {
        "name": name,
        "kind": kind,
        "about": _ABOUT[kind],
        "module": module,
        "Class": made,
        "distribution": f"deedbook-{kind}-{name}",
        "group": ENTRY_POINTS[kind],
        "family": f"x.{name.replace('-', '_')}",
        "target": f"{module}.data" if kind == "pack" else f"{module}:{made}",
    }


def _fill(templates: Path, made: Path, words: Mapping[str, str]) -> None:
    for source in sorted(templates.rglob(f"*{_ENDING}")):
        told = str(source.relative_to(templates)).removesuffix(_ENDING)
        place = made / told.replace("MODULE", words["module"]).replace("NAME", words["name"])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(Template(source.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
