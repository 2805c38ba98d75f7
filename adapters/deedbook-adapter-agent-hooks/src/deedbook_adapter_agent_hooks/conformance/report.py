"""Run the vectors of the kit with the host in one workspace, and say what passed."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from agent_hooks.ctk import load_vectors, run_vector
from click.testing import CliRunner

from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program
from deedbook.format.reader import read
from deedbook_guard import guard

from .host import CAPABILITIES, GuardHost
from .ledger import find_faults

_AGENT: Final = "kit"
_STATUS: Final = {"pass": "passed", "fail": "failed", "skip": "skipped"}


@attrs.frozen
class VectorResult:
    """What a vector showed: *status* is ``passed``, ``failed`` or ``skipped``, *reasons* say why it did not pass."""

    id: str
    title: str
    status: str
    reasons: tuple[str, ...] = ()


@attrs.frozen
class KitReport:
    """The results of all vectors, the host's capabilities, and how many conversations, calls and denials there were."""

    results: tuple[VectorResult, ...]
    capabilities: tuple[str, ...]
    events: Counter[str]
    unsound: str
    """What ``deedbook verify`` said if it did not find every ledger sound."""

    @property
    def ok(self) -> bool:
        """Whether no vector failed and every ledger is sound."""
        return not self.unsound and all(each.status != "failed" for each in self.results)


def run_kit(folder: Path, host: type[GuardHost] = GuardHost, vectors: Sequence[Any] | None = None) -> KitReport:
    """Run the *vectors* (default: all of the kit) with hosts that use a new workspace in *folder*."""
    chosen = load_vectors() if vectors is None else vectors
    _write_workspace(folder, sorted({tool["name"] for each in chosen for tool in each["scenario"].get("tools", ())}))
    results, events = [], Counter[str]()
    with guard(_AGENT, workspace=folder) as governed:
        for vector in chosen:
            made = host(governed)
            results.append(_run(made, vector, folder, events))
    ran = CliRunner().invoke(program, ["-C", str(folder), "verify"], obj=GlobalOptions(), standalone_mode=False)
    unsound = "" if ran.return_value == 0 else ran.output or repr(ran.exception)
    return KitReport(tuple(results), CAPABILITIES, events, unsound)


def render(report: KitReport) -> str:
    """Return a report as Markdown."""
    counts, seen = Counter(each.status for each in report.results), report.events
    claimed = ", ".join(f"`{each}`" for each in report.capabilities)
    calls = f"{seen['tool.call']} calls of tools, {seen['tool.denied']} denied ones"
    sound = "unsound" if report.unsound else "sound"
    lines = [
        f"{len(report.results)} vectors, with the capabilities {claimed}:",
        "",
        "| passed | failed | skipped |",
        "|---|---|---|",
        f"| {counts['passed']} | {counts['failed']} | {counts['skipped']} |",
        "",
        f"{seen['session.start']} sessions, {calls}, {seen['llm.request']} requests to the model; ledgers {sound}.",
        "",
        *(f"- {each.id} {each.status}: {'; '.join(each.reasons)}" for each in report.results if each.reasons),
    ]
    return "\n".join(lines) + "\n"


def _run(host: GuardHost, vector: Any, folder: Path, events: Counter[str]) -> VectorResult:
    said = asyncio.run(run_vector(host, vector))
    reasons = list(said.failures) if said.status == "fail" else []
    if host.loop is not None:
        found = list(read(folder / ".deedbook/sessions" / host.loop.conversation.id / ".events.jsonl"))
        events.update(event.type for event in found)
        reasons += find_faults(found, host.loop.ran, host.loop.requests)
    if said.status == "skip":
        reasons = [said.detail]
    status = "failed" if reasons and said.status == "pass" else _STATUS[said.status]
    return VectorResult(said.id, said.title, status, tuple(reasons))


def _write_workspace(folder: Path, tools: Sequence[str]) -> None:
    system = folder / ".system"
    system.mkdir(parents=True)
    declared = "".join(f"      {each}: {{effects: write}}\n" for each in tools)
    head = "schema_version: v1\ndefault: {write: allow}\n"
    text = f"{head}agents:\n  {_AGENT}:\n    kind: program\n    unknown_tools: deny\n"
    system.joinpath("deedbook.yaml").write_text(f"{text}    tools:\n{declared}" if tools else text, encoding="utf-8")
