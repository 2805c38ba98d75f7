"""List the policies, and test them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, say, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deedbook.format.errors import DomainError
    from deedbook.policy.fitting import PolicyNote
    from deedbook.workspace.declarations import Workspace
    from deedbook_author.policy_cases import Case, CaseResult, RuleCoverage

SECTION: Final = "Workspace"


@data_command
@click.group("policy", cls=SuggestingGroup)
def command() -> None:
    """List the policies of the workspace, and test them."""


@command.command("list", short_help="List the policies, and the rules that never decide.")
@profile_option
@json_option
@click.pass_obj
def listing(options: GlobalOptions, profile: str | None) -> int:
    """List the policies: their kind, how many rules and abilities they have, and the rules that never decide."""
    from deedbook.kernel import bindings_for_judging
    from deedbook.plugins.plugins import discover
    from deedbook.plugins.policy_kinds import installed_kinds
    from deedbook.workspace.workspace import read_workspace
    from deedbook_author.policy_coverage import covers, find_unguarded, lint_policies_here

    source, catalogue = read_workspace(options.workspace, profile), discover()
    with bindings_for_judging(source, catalogue) as bindings:
        document = bindings.charter.document
        never, fits = lint_policies_here(document, installed_kinds(catalogue), source.policies), covers(document)
    policies = sorted(document["policies"].items())
    if options.json:
        as_json({"schema_version": "v1", "policies": [_policy(name, entry, fits[name]) for name, entry in policies],
                 "idle": [_idle(each, each.rule) for each in never if each.rule is not None]})  # fmt: skip
        return 0
    if not policies:
        say("no policies are declared; add one in .system/policies/")
    table(
        (name, entry["plugin"][1], _count(entry["rules"], "rule"), _list_subjects(entry, fits[name]), entry["place"])
        for name, entry in policies
    )
    for each in never:
        message(f"{each.place}: {each}")
    for free in find_unguarded(document):
        if free.outcome != "allow":
            message(str(free))
    return 0


def _policy(name: str, entry: "Mapping[str, Any]", fits: "Sequence[str]") -> dict[str, Any]:
    from deedbook.policy.charter import lists_rules

    rules = entry["settings"]["rules"] if lists_rules(entry) else []
    told = [{"place": place, "then": rule["then"], "reason": rule.get("reason", ""), "when": rule.get("when")}
            for place, rule in zip(entry["rules"], rules, strict=False)]  # fmt: skip
    subjects = {"subjects": sorted(entry["subjects"])} if entry.get("subjects") else {}
    return {"id": name, "kind": entry["plugin"][1], "place": entry["place"], "abilities": list(fits),
            "reads": entry["reads"], "rules": told, **subjects}  # fmt: skip


def _list_subjects(entry: "Mapping[str, Any]", fits: "Sequence[str]") -> str:
    """Return what a policy is asked about: its abilities, and the subjects of its kind."""
    from deedbook.policy.fitting import judges_calls

    calls = [_count(fits, "ability")] if judges_calls(entry) else []
    return ", ".join([*calls, *entry.get("subjects", ())])


def _idle(each: "PolicyNote", rule: int) -> dict[str, Any]:
    return {"policy": each.policy, "rule": rule + 1, "place": each.place, "why": each.why}


def _count(things: "Sequence[Any]", noun: str) -> str:
    several = f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"
    return f"{len(things)} {noun if len(things) == 1 else several}"


# --- tests ------------------------------------------------------------------------------------------------------------


@command.command("test", short_help="Judge the cases of FILE, or of all test files.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--coverage", metavar="N", type=click.IntRange(0, 100), help="Fail if fewer than N % of the rules decide."
)
@click.option("--hooks", is_flag=True, help="Also run hooks that are pure.")
@profile_option
@json_option
@click.pass_obj
def test(
    options: GlobalOptions, files: tuple[str, ...], coverage: int | None, profile: str | None, *, hooks: bool
) -> int:
    """Judge the cases in FILE, or in all `*.test.yaml` beside the policies, and list rules that no case reaches.

    Without FILE, the cases in packs are also judged, if they are about abilities of this workspace. A rule is covered
    if it decided the answer of its policy in at least one case. Exit status 1 if a case fails; 0 without any tests,
    with a message.
    """
    from deedbook.kernel import bindings_for_judging
    from deedbook.plugins.plugins import discover
    from deedbook.plugins.policy_kinds import installed_kinds
    from deedbook.workspace.workspace import read_workspace
    from deedbook_author import policy_cases

    source, catalogue = read_workspace(options.workspace, profile), discover()
    cases, packed = _cases(source, files)
    with bindings_for_judging(source, catalogue) as bindings:
        here = [case for case in packed if case.subject or case.ability in bindings.abilities]
        findings = [policy_cases.run_case(bindings, case, hooks=hooks) for case in (*cases, *here)]
        parts = policy_cases.coverage(bindings, findings, installed_kinds(catalogue), source.policies)
    if len(here) < len(packed):
        message(f"{_count(packed[len(here) :], 'case')} of packs left out: this workspace lacks the abilities")
    failed = [finding for finding in findings if finding.problem]
    percent = policy_cases.covered_percent(parts)
    enough = coverage is None or percent >= coverage
    if options.json:
        as_json(_as_json(findings, parts, percent, ok=not failed and enough))
    else:
        _tell(findings, parts, percent)
        if not enough:
            message(f"the cases cover {percent:.0f} % of the rules; {coverage} % are required")
    return 0 if not failed and enough else 1


def _cases(source: "Workspace", paths: tuple[str, ...]) -> "tuple[list[Case], list[Case]]":
    """Return the cases of the workspace, and those of its packs."""
    from deedbook.format.errors import SourceError, raise_all
    from deedbook.format.files import Folder
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.workspace.trees import list_trees
    from deedbook_author import policy_cases

    schemas = Schemas.load(data_folder("schemas"))
    faults: list[DomainError] = []
    found: list[Case] = []
    brought: list[Case] = []
    with Folder.at(source.root) as folder:
        own, *packed = list_trees(folder, source)
        named = [(own, _below(source.root, path)) for path in paths]
        beside = ((each, path) for each in (own, *packed) for path in each.tests(policy_cases.FOLDER))
        for tree, path in named or beside:
            try:
                (brought if tree.label else found).extend(policy_cases.read_cases(tree, path, schemas))
            except SourceError as problem:
                faults += problem.errors
    raise_all(SourceError, faults)
    if not found and not brought:
        message(f"there are no tests; write some in .system/{policy_cases.FOLDER}/NAME.test.yaml")
    return found, brought


def _below(root: Path, path: str) -> str:
    """Return *path*, relative to the current folder, as a path within the workspace."""
    whole = Path(path).absolute()
    if not whole.is_relative_to(root):
        raise click.UsageError(f"{path} is outside the workspace {root}")
    return str(whole.relative_to(root))


def _as_json(findings: "list[CaseResult]", parts: "list[RuleCoverage]", percent: float, *, ok: bool) -> dict[str, Any]:
    rules = [part.as_json() for part in parts]
    return {"schema_version": "v1", "ok": ok, "cases": [finding.as_json() for finding in findings],
            "coverage": {"percent": round(percent, 1), "rules": rules}}  # fmt: skip


def _tell(findings: "list[CaseResult]", parts: "list[RuleCoverage]", percent: float) -> None:
    from deedbook.format.terminal import plain

    failed = [finding for finding in findings if finding.problem]
    for finding in failed:
        say(plain(f"FAILED {finding.case.name} ({finding.case.place}): {finding.problem}"))
        if finding.got:
            say(plain(f"       decided by {_by(finding.decided_by)}{f': {finding.reason}' if finding.reason else ''}"))
    for part in parts:
        if not part.covered:
            say(plain(f"never decided: {part.label} of {part.policy} ({part.place})"))
    covered = sum(part.covered for part in parts)
    say(f"{len(findings) - len(failed)} of {_count(findings, 'case')} passed; "
        f"{covered} of {_count(parts, 'rule')} and defaults decided ({percent:.0f} %)")  # fmt: skip


def _by(who: "Mapping[str, Any]") -> str:
    kind = next((name for name in ("policy", "hook") if name in who), None)
    name = f"{kind} {who[kind]}" if kind else "no policy" if not who else "the kernel"
    place = who.get("rule") or who.get("place")
    return f"{name} ({place})" if place else name
