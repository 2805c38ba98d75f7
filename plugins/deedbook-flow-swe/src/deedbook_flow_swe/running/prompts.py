"""The context of a run of a phase."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from deedbook import Object
from deedbook_flow_swe.contract import Contract
from deedbook_flow_swe.definition import Definition

from .files import File


@attrs.frozen(kw_only=True)
class AssembledContext:
    """The text of a prompt, its *tokens*, who *counted* them, its *parts*, and what was *left_out*."""

    text: str
    tokens: int
    counted: str
    parts: tuple[Mapping[str, Any], ...]
    left_out: tuple[str, ...] = ()

    def as_event(self, budget: int) -> dict[str, Any]:
        """Return the payload of ``swe.context_assembled``."""
        return {
            "tokens": self.tokens,
            "counted": self.counted,
            "budget": budget,
            "parts": [dict(each) for each in self.parts],
            "left_out": list(self.left_out),
        }


def assemble(  # noqa: PLR0913
    definition: Definition, contract: Contract, files: Mapping[str, File], task: Object, *, unit: Object | None,
    code: Sequence[File], returned: File | None,
) -> AssembledContext:  # fmt: skip
    """Return the context."""
    shown = [*files.values(), *code, *([returned] if returned and returned.path not in files else [])]
    outputs = "\n".join(each.path.replace("{task-id}", task["id"]) for each in contract.outputs)
    text = "\n\n".join([contract.objective, outputs, *(f"## {each.path}\n{each.text}" for each in shown)])
    parts = tuple({"path": each.path, "digest": each.digest, "tokens": len(each.text) // 4} for each in shown)
    return AssembledContext(text=text, tokens=len(text) // 4, counted="estimate", parts=parts)
