"""Compile a task into a plan from the skills, without running it."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, report_error, say, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deedbook_flow_runcontext.compiler import PlanRefused
    from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue

SECTION: Final = "Workspace"
MAX_BYTES: Final = 1024 * 1024

_REFUSED: Final = 1
_NAMED: Final = 10


@data_command
@click.command("compile")
@click.argument("prompt", metavar="TASK", nargs=-1, required=True)
@click.option("--matcher", type=click.Choice(("keyword", "hashing")), default="keyword", show_default=True,
              help="Find skills by names and triggers, or also by similar spelling.")  # fmt: skip
@click.option("--meta-skill", metavar="NAME", help="A skill that the plan begins with.")
@click.option("--mermaid", is_flag=True, help="Print the plan as a Mermaid flowchart.")
@profile_option
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions, prompt: tuple[str, ...], matcher: str, meta_skill: str | None, profile: str | None, *,
    mermaid: bool,
) -> int:  # fmt: skip
    """Choose skills for TASK, check their tools, and print the steps, their order and what can run in parallel.

    Nothing runs and nothing is recorded. The exit status is 1 if no skill fits (NO_SKILL) or the plan is refused
    (PLAN_REFUSED).
    """
    from deedbook_flow_runcontext.compiler import CompilerSettings, PlanRefused, SkillCompiler

    if mermaid and asked.json:
        raise click.UsageError("use either --json or --mermaid")
    task = _read_task(prompt)
    catalogue = _read_catalogue(asked, profile)
    compiler = SkillCompiler(catalogue, CompilerSettings(matcher=matcher, meta_skill=meta_skill))
    answer = _Answer(task, matcher, sorted(catalogue.skills))
    try:
        return answer.print_plan(compiler.compile(task), json=asked.json, mermaid=mermaid)
    except PlanRefused as refused:
        return answer.print_refusal(refused, json=asked.json, mermaid=mermaid)


def _read_task(words: tuple[str, ...]) -> str:
    """Return the task; raises `click.UsageError` for several arguments, and for a text that is empty or too long."""
    if len(words) > 1:
        raise click.UsageError(f'the task is {len(words)} arguments; put it in quotes: deedbook compile "…"')
    text = words[0]
    try:
        size = len(text.encode())
    except UnicodeEncodeError as problem:
        raise click.UsageError(f"the task is not UTF-8 at character {problem.start + 1}") from None
    if size > MAX_BYTES:
        raise click.UsageError(f"the task is longer than {MAX_BYTES} bytes; write a shorter one")
    if not text.strip():
        raise click.UsageError("the task is empty")
    return text


def _read_catalogue(asked: GlobalOptions, profile: str | None) -> "SkillCatalogue":
    """Return the skills and abilities of the workspace; raises `DeedbookError` with every fault."""
    from deedbook.kernel import bindings_for_judging
    from deedbook.workspace.workspace import read_workspace
    from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue

    with bindings_for_judging(read_workspace(asked.workspace, profile)) as bindings:
        for why in bindings.charter.set_aside:
            message(f"skill set aside: {why}")
        return SkillCatalogue.from_charter(bindings.charter.document, bindings.skills)


class _Answer:
    """The output for one task; *skills* are the names of all skills of the workspace."""

    def __init__(self, task: str, matcher: str, skills: "Sequence[str]") -> None:
        self._task, self._matcher, self._skills = task, matcher, skills

    def print_plan(self, plan: "Mapping[str, Any]", *, json: bool, mermaid: bool) -> int:
        """Print the plan; return the exit status."""
        included, excluded = plan["skills_included"], plan["skills_excluded"]
        if json:
            as_json(self._document(included, excluded, plan=plan))
        elif mermaid:
            from deedbook_flow_runcontext.diagram import draw_mermaid

            say(draw_mermaid(plan))
        else:
            self._print_skills(included, excluded)
            table(_describe_steps(plan))
            table(("risk", each) for each in plan["risks"])
        return 0

    def print_refusal(self, refused: "PlanRefused", *, json: bool, mermaid: bool) -> int:
        """Print why there is no plan; return the exit status."""
        report_error(f"{refused} [{refused.code}]")
        if json:
            error = {"code": refused.code, "message": str(refused), "place": None}
            findings = [each.as_json() for each in refused.findings]
            as_json(self._document(refused.included, refused.excluded, findings=findings, errors=[error]))
        elif not mermaid:
            self._print_skills(refused.included, refused.excluded)
        return _REFUSED

    def _document(
        self,
        included: "Sequence[Mapping[str, Any]]",
        excluded: "Sequence[Mapping[str, Any]]",
        *,
        plan: "Mapping[str, Any] | None" = None,
        findings: "Sequence[Mapping[str, Any]]" = (),
        errors: "Sequence[Mapping[str, Any]]" = (),
    ) -> dict[str, Any]:
        return {
            "schema_version": "v1",
            "ok": plan is not None,
            "task": self._task,
            "matcher": self._matcher,
            "skills_included": list(included),
            "skills_excluded": list(excluded),
            "skills_unmatched": self._list_unmatched(included, excluded),
            "plan": plan,
            "findings": list(findings),
            "errors": list(errors),
        }

    def _print_skills(self, included: "Sequence[Mapping[str, Any]]", excluded: "Sequence[Mapping[str, Any]]") -> None:
        table([*_describe_skills("included", included), *_describe_skills("excluded", excluded)])
        if rest := self._list_unmatched(included, excluded):
            more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
            table([("not matched", ", ".join(rest[:_NAMED]) + more)])

    def _list_unmatched(self, *considered: "Iterable[Mapping[str, Any]]") -> list[str]:
        names = {each["name"] for group in considered for each in group}
        return [name for name in self._skills if name not in names]


def _describe_skills(what: str, skills: "Iterable[Mapping[str, Any]]") -> "Iterator[tuple[str, ...]]":
    for each in skills:
        yield what, each["name"], each["reason"]


def _describe_steps(plan: "Mapping[str, Any]") -> "Iterator[tuple[str, ...]]":
    """Yield a row for each step, in order, with the number of its parallel group."""
    steps = {step["id"]: step for step in plan["steps"]}
    for number, group in enumerate(plan["parallel_groups"], 1):
        for name in group:
            step = steps[name]
            target = next((f"{kind} {step[kind]}" for kind in ("ability", "skill") if kind in step), "-")
            marks = [*step.get("tags", ()), *(mark for mark in ("optional", "halt_on_failure") if step.get(mark))]
            after = ", ".join(step["depends_on"])
            yield (
                f"group {number}",
                name,
                target,
                f"after {after}" if after else "-",
                ", ".join(marks) or "-",
                (" ".join(step["description"].split())),
            )
