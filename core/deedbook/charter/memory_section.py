"""The memory part of a charter: zones, keys, excluded values, and the persona that owns the memory."""

from typing import Any

from deedbook.contract.pointers import join_pointer
from deedbook.policy.conditions import too_large
from deedbook.workspace.declarations import MemorySource, Workspace

from .linker import Linker, locator
from .zones import entry_of


class MemoryCompiler:
    """Compiles the memory section of *workspace* and reports faults to the *linker*."""

    def __init__(self, workspace: Workspace, linker: Linker) -> None:
        self._workspace, self._linker = workspace, linker

    def entries(self) -> dict[str, Any]:
        """Return the charter's members ``memory`` and ``persona``; neither where the workspace declares none."""
        memory, persona = self._workspace.memory, self._workspace.persona
        made: dict[str, Any] = {}
        if memory is not None:
            self._check(memory)
            made["memory"] = entry_of(memory.section)
        if persona is not None:
            made["persona"] = {"id": persona.id, "version": persona.version, "digest": persona.digest,
                               "source": persona.file}  # fmt: skip
        return made

    def _check(self, memory: MemorySource) -> None:
        section = memory.section
        for glob, body in section.get("keys", {}).items():
            self._linker.schema(body.get("schema"), locator(memory, join_pointer("keys", glob, "schema")))
            self._globs(memory, [glob], join_pointer("keys", glob))
        self._globs(memory, list(section.get("verified_by", ())), "/verified_by")
        for zone, who in section.get("zones", {}).items():
            for access, callers in who.items():
                for index, each in enumerate(callers):
                    self._globs(memory, list(each.get("principals", ())), join_pointer("zones", zone, access, index))

    def _globs(self, memory: MemorySource, globs: list[str], where: str) -> None:
        if globs and too_large(globs):
            self._linker.refuse("SOURCE_INVALID", "the globs are too large", locator(memory)(where))
