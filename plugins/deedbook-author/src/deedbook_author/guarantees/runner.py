"""Run every attack against a scratch copy of a workspace: start reading here."""

import time
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.errors import DeedbookError, describe, recordable
from deedbook.plugins.plugins import Catalogue, discover

from . import approvals, decisions, records, starts, values
from .attacks import KERNEL, Attack, AttackResult, NotApplicable, PromiseBroken
from .scratch import Original, Scratch, isolated_environment
from .target import Target

ATTACKS: Final[Sequence[Attack]] = (
    *decisions.ATTACKS,
    *approvals.ATTACKS,
    *values.ATTACKS,
    *starts.ATTACKS,
    *records.ATTACKS,
)
"""Every attack, in the order in which they run."""


@attrs.frozen(kw_only=True)
class Examination:
    """The *results* of all attacks on one workspace.

    *digest* is the SHA-256 of the *files* that were copied; *unchanged* tells whether it is the same afterwards.
    *left_out* files were not copied, *silenced*: hooks in processes of their own were not asked.
    """

    workspace: str
    results: tuple[AttackResult, ...]
    digest: str
    unchanged: bool
    files: int
    left_out: int = 0
    silenced: bool = False

    @property
    def well(self) -> bool:
        """Whether every promise that applies holds, and the original is as it was."""
        return self.unchanged and all(result.well for result in self.results)

    def count(self, status: str) -> int:
        """Return how many attacks ended with *status*."""
        return sum(result.status == status for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON (``output_guarantees_v1``)."""
        return {
            "schema_version": "v1",
            "ok": self.well,
            "workspace": self.workspace,
            "original": {"sha256": self.digest, "files": self.files, "unchanged": self.unchanged},
            "left_out": self.left_out,
            "hook_programs": "not asked" if self.silenced else "asked",
            "results": [result.as_json() for result in self.results],
        }

    @classmethod
    def restore(cls, said: Any) -> "Examination":
        """Return the examination that `as_json` gave."""
        original = said["original"]
        return cls(
            workspace=said["workspace"],
            results=tuple(AttackResult(**result) for result in said["results"]),
            digest=original["sha256"],
            unchanged=original["unchanged"],
            files=original["files"],
            left_out=said["left_out"],
            silenced=said["hook_programs"] == "not asked",
        )


def examine_guarantees(
    root: Path,
    scratch: Path,
    profile: str | None = None,
    *,
    only: Collection[str] = (),
    silence: bool = False,
    catalogue: Catalogue | None = None,
) -> Examination:
    """Attack a copy of the workspace at *root*, made below the empty folder *scratch*.

    *only* are the ids of the attacks to run, by default all. With *silence*, hooks in processes of their own are not
    asked. Raises `DeedbookError` with every fault if the workspace cannot be opened.
    """
    installed = catalogue or discover()
    original = Original.read(root, profile, installed)
    digest = original.digest()
    with isolated_environment(original.workspace, scratch / "config") as secrets:
        copy = Scratch.create(original, scratch / "workspace")
        with closing(Target(copy, installed, secrets, silence=silence)) as target:
            target.base.kernel.bindings  # noqa: B018 - a workspace that does not open has one error, not thirty
            results = tuple(_run(attack, target) for attack in ATTACKS if not only or attack.id in only)
    return Examination(
        workspace=str(root), results=results, digest=digest, unchanged=original.digest() == digest,
        files=len(original.files), left_out=original.left_out, silenced=silence,
    )  # fmt: skip


def _run(attack: Attack, target: Target) -> AttackResult:
    """Run one attack; whatever it raises becomes its result."""
    begun = time.perf_counter()
    status, found, change = _outcome(attack, target)
    return AttackResult(
        id=attack.id, promise=attack.promise, status=status, found=recordable(found), change=change,
        seconds=time.perf_counter() - begun,
    )  # fmt: skip


def _outcome(attack: Attack, target: Target) -> Any:
    try:
        if why := attack.applies(target):
            return "not applicable", why, ""
        return "holds", attack.run(target), ""
    except NotApplicable as problem:
        return "not applicable", str(problem), ""
    except PromiseBroken as problem:
        return "broken", problem.found, problem.change
    except KeyboardInterrupt:
        raise
    except DeedbookError as problem:
        return "error", f"the attack could not be made: {problem.error}", KERNEL
    except BaseException as problem:  # noqa: BLE001 - plugins of the workspace may raise anything; nothing is known then
        return "error", f"the attack could not be made: {describe(problem)}", KERNEL
