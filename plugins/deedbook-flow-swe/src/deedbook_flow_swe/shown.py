"""How prompts show the files that the runner writes: without digests, times and long lists; pure.

A gate file names every approved file with its digest, and a report names every test of the repository. A prompt has a
budget, so it shows the facts of these files. The files stay as they are: rules see all of them.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.policy.conditions import glob_test
from deedbook.workspace.documents import parse_front_matter, parse_yaml

from .contract import TASK, fill
from .definition import Definition
from .globs import whole_glob
from .learning.world import EVIDENCE_FOLDER, summarise_evidence

ROLLBACK_LOG: Final = "shared/rollback-log.md"
META: Final = "tasks/{task-id}/META.yaml"
_HIDDEN: Final = frozenset({
    "schema_version", "task_id", "to_phase", "gate", "contract", "inputs", "outputs", "seen", "time", "pipeline",
    "generated", "status", "created", "submitted_by", "source", "digest",
})  # fmt: skip
"""The keys of gate files, signals and tasks that tell an agent nothing about its work."""
_KNOWN: Final = frozenset({"schema_version", "task_id"})
"""The keys of reports that tell an agent nothing."""
_LONGEST_LIST: Final = 1200
"""The most bytes of a list in a report that are shown; more entries are counted."""


class RunnerFiles:
    """Shows the files that the runner of *definition* writes; *values* replace placeholders of paths."""

    def __init__(self, definition: Definition, values: Mapping[str, str]) -> None:
        self._task = values.get(TASK, "")
        self._folder = definition.path(f"tasks/{self._task}/")
        self._meta = fill(definition.path(META), values)
        self._log = definition.path(ROLLBACK_LOG)
        self._evidence = definition.path(f"{EVIDENCE_FOLDER}/")
        self._gates = {name for contract in definition.phases for name in contract.gate.names}
        results = (path for contract in definition.phases for path in contract.result_paths)
        self._is_result = glob_test([whole_glob(fill(each, values)) for each in results])

    def show(self, path: str, text: str) -> str:
        """Return what a prompt shows of the file at *path*: *text*, or its facts if the runner writes it."""
        try:
            if path == self._meta:
                return _render(parse_yaml(text.encode(), path).value)
            if path.startswith(self._folder) and path.rpartition("/")[2] in self._gates:
                return _render(parse_front_matter(text.encode(), path)[0].value)
            if path.startswith(self._evidence):
                evidence: Any = parse_yaml(text.encode(), path).value
                return _list_members(summarise_evidence(evidence))
            if self._is_result(path):
                return f"{json.dumps(_shorten(canonical.parse(text)), ensure_ascii=False)}\n"
        except (DeedbookError, ValueError, LookupError, TypeError):
            return text
        return _select_task(text, self._task) if path == self._log else text


def _render(value: Any) -> str:
    """Return the members of a record, without those that say nothing, one on each line."""
    kept = {key: each for key, each in _drop(value, _HIDDEN).items() if each not in ([], "")}
    if not kept:
        raise ValueError("it has no facts")
    if isinstance(value.get("contract"), dict):
        kept["agent"] = value["contract"].get("agent")
    return _list_members(kept)


def _list_members(value: Mapping[str, Any]) -> str:
    return "".join(f"{key}: {json.dumps(each, ensure_ascii=False)}\n" for key, each in value.items())


def _shorten(value: Any) -> Any:
    """Return a report with short lists and without empty members; of a list of reports, each one."""
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _shorten_list(each) if isinstance(each, list) else each for key, each in _drop(value, _KNOWN).items()}


def _drop(value: Any, hidden: frozenset[str]) -> dict[str, Any]:
    """Return the members of a mapping without those that are *hidden* or null; none of anything else."""
    if not isinstance(value, dict):
        return {}
    return {key: each for key, each in value.items() if key not in hidden and each is not None}


def _shorten_list(rows: list[Any]) -> list[Any]:
    """Return the first entries, without tests that passed, and how many there are besides."""
    left = [each for each in rows if not (isinstance(each, dict) and each.get("outcome") == "passed")]
    passed, shown, size = len(rows) - len(left), [], 0
    for each in left:
        size += len(canonical.encode(each))
        if size > _LONGEST_LIST:
            break
        shown.append(each)
    more = len(left) - len(shown)
    notes = [f"{more} more, {len(left)} in all" if more else "", f"{passed} that passed" if passed else ""]
    return [*shown, *(f"… and {each}" for each in notes if each)]


def _select_task(text: str, task: str) -> str:
    """Return the section of the rollback log about *task*."""
    for section in text.split("\n## ")[1:]:
        title, _, rows = section.partition("\n")
        if title.strip() == task:
            return f"{rows.strip()}\n"
    return f"{task} has no rollback.\n"
