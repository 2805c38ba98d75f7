"""The skill loader ``markdown``: one folder per skill, a SKILL.md in it."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from deedbook import Failed, GateSpec, Host, Object, Skill

from .frontmatter import MAX_FILE, Front, failure, read
from .skill import Faults, card, skill

DEFAULT_ROOTS: Final = (".system/skills", ".system/agents")

_FILES: Final[Mapping[str, Callable[[Front, str, str], Skill]]] = MappingProxyType({"SKILL.md": skill, ".agent": card})


class Markdown:
    """Yields the skill of each ``<root>/<name>/SKILL.md`` and ``<root>/<name>/.agent``, sorted by name within a root.

    What is wrong with one is yielded as `Failed`, with file, line and reason, and so is a name that two files claim:
    neither gets it. Its ``source`` is the file; what is wrong with a root has none, since it is about no single skill.
    Folders without either file are no skills. Links are not followed.
    """

    spec = GateSpec(
        settings={
            "type": "object",
            "properties": {
                "roots": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "description": "Folders of skills, relative to the workspace.",
                }
            },
            "additionalProperties": False,
        }
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self._host = host
        self._roots = tuple(dict.fromkeys(settings.get("roots", DEFAULT_ROOTS)))

    def __call__(self) -> Iterable[Skill | Failed]:
        """Read all roots again and return what was found."""
        found = [item for root in self._roots for item in self._under(root)]
        sources: dict[str, list[str]] = {}
        for item in found:
            if isinstance(item, Skill):
                sources.setdefault(item.name, []).append(item.source)
        return [_unique(item, sources) if isinstance(item, Skill) else item for item in found]

    def _under(self, root: str) -> Iterable[Skill | Failed]:
        try:
            entries = self._host.scan(root)
        except FileNotFoundError:
            if root not in DEFAULT_ROOTS:
                yield Failed("SOURCE_INVALID", f"{root}: no such folder; correct the root, or make it")
            return
        except (Failed, OSError) as problem:
            yield Failed(_code(problem), f"{root}: cannot be read: {problem}")
            return
        for entry in entries:
            if entry.folder:
                yield from self._in(entry.path)

    def _in(self, folder: str) -> Iterable[Skill | Failed]:
        for name, make in _FILES.items():
            path = f"{folder}/{name}"
            try:
                with self._host.open(path) as file:
                    raw = file.read(MAX_FILE + 1)
                front, body = read(raw, path, fenced=make is skill)
                yield make(front, body, folder.rpartition("/")[2])
            except FileNotFoundError:
                continue
            except Faults as problem:
                yield from problem.found
            except OSError as problem:
                yield _unreadable(path, problem)
            except Failed as problem:
                yield problem if problem.code == "SOURCE_INVALID" else _unreadable(path, problem)


def _unreadable(path: str, problem: Failed | OSError) -> Failed:
    return Failed(_code(problem), f"{path}: cannot be read: {problem}", source=path)


def _code(problem: Failed | OSError) -> str:
    return problem.code if isinstance(problem, Failed) else "SOURCE_INVALID"


def _unique(item: Skill, sources: Mapping[str, list[str]]) -> Skill | Failed:
    others = [source for source in sources[item.name] if source != item.source]
    if not others:
        return item
    return failure(item.source, 1, f"the name {item.name} is taken twice, also by {', '.join(others)}; rename one")
