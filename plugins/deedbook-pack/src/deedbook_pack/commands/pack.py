"""Check, test, build, compare and list packs."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, display_path, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, say

if TYPE_CHECKING:
    from deedbook.plugins.plugins import Catalogue
    from deedbook.workspace.declarations import Workspace
    from deedbook_author.findings import Finding
    from deedbook_pack.cases import TestResult
    from deedbook_pack.comparison import Comparison
    from deedbook_pack.overview import PackSummary
    from deedbook_pack.packages import Pack

SECTION: Final = "Workspace"
CHANGED = 1


@data_command
@click.group("pack", cls=SuggestingGroup)
def command() -> None:
    """Write, test, ship and upgrade packs of policies.

    A pack is named by its name if it is installed, by its source folder (./house), or by its wheel.
    """


# --- lint -------------------------------------------------------------------------------------------------------------


@command.command("lint", short_help="Check a pack: a folder, a wheel, or the name of an installed one.")
@click.argument("pack", metavar="FOLDER|NAME")
@click.option("--strict", is_flag=True, help="Notes count as errors, too.")
@json_option
@click.pass_obj
def lint(options: GlobalOptions, pack: str, *, strict: bool) -> int:
    """Report what would prevent the use of a pack, and what is doubtful about it, with file, line and column.

    No workspace is needed. The exit status is 1 if there are errors; with --strict, also if there are notes.
    """
    import attrs

    from deedbook.format.terminal import plain, pluralise
    from deedbook.plugins.plugins import discover
    from deedbook_pack.lint import lint_package

    found = lint_package(pack, discover())
    findings: list[Finding] = [each for _, some in found for each in some]
    errors = sum(each.level == "error" for each in findings)
    ok = not errors and not (strict and findings)
    if options.json:
        as_json(
            {
                "schema_version": "v1",
                "ok": ok,
                "packs": [title for title, _ in found],
                "findings": [attrs.asdict(each) for each in findings],
            }
        )
        return 0 if ok else 1
    for each in findings:
        code = f" [{each.code}]" if each.code else ""
        say(plain(f"{each.level}: {each.place or pack}: {each.message}{code}"))
    message(f"{', '.join(title for title, _ in found) or pack}: {pluralise(errors, 'error')}, "
            f"{pluralise(len(findings) - errors, 'note')}")  # fmt: skip
    return 0 if ok else 1


# --- test -------------------------------------------------------------------------------------------------------------


@command.command("test", short_help="Run the test cases of a pack, in a scratch workspace and in this one.")
@click.argument("pack", metavar="FOLDER|NAME")
@click.option(
    "--coverage", metavar="N", type=click.IntRange(0, 100), help="Fail if fewer than N % of the rules decide."
)
@json_option
@click.pass_obj
def test(options: GlobalOptions, pack: str, coverage: int | None) -> int:
    """Run the cases beside the policies and hooks of a pack, and list rules that no case reaches.

    They run in a scratch workspace that pack.test.yaml describes. If the current workspace names the pack, they run
    there as well, with its other policies; cases about abilities that it does not declare are skipped.
    """
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.workspace import load_workspace
    from deedbook_pack.cases import run_cases
    from deedbook_pack.packages import open_packs
    from deedbook_pack.scratch import open_scratch

    catalogue = discover()
    rows: list[tuple[Pack, str, TestResult]] = []
    with ExitStack() as held:
        for each in open_packs(pack, held, catalogue):
            scratch = held.enter_context(open_scratch(each, catalogue))
            made = load_workspace(scratch.root, catalogue=scratch.catalogue)
            rows.append((each, "scratch", run_cases(each, made, scratch.catalogue, skip=False)))
            here = _find_user(options, each, catalogue)
            if here is not None:
                used = each.use_in(catalogue)
                source = load_workspace(here.root, catalogue=used)
                rows.append((each, "workspace", run_cases(each, source, used, skip=True)))
    few = [each for each in rows if each[1] == "scratch" and coverage is not None and each[2].percent < coverage]
    ok = not few and not any(result.failure_count for _, _, result in rows)
    if options.json:
        as_json({"schema_version": "v1", "ok": ok, "runs": [_test_json(*each) for each in rows]})
        return 0 if ok else 1
    for row in rows:
        _print_test(*row)
    for tested, _, result in few:
        message(f"the cases of {tested.name} cover {result.percent:.0f} % of its rules; {coverage} % are required")
    return 0 if ok else 1


def _find_user(options: GlobalOptions, pack: "Pack", catalogue: "Catalogue") -> "Workspace | None":
    """Return the current workspace if there is one and it names *pack*."""
    from deedbook.format.errors import SourceError
    from deedbook.workspace.sources import find_workspace
    from deedbook.workspace.workspace import survey_workspace

    try:
        root = find_workspace(Path(options.workspace))
    except SourceError:
        return None
    found, _ = survey_workspace(root, catalogue=pack.use_in(catalogue))
    return found if found is not None and pack.name in found.packs else None


def _test_json(pack: "Pack", where: str, result: "TestResult") -> dict[str, Any]:
    rules = [{**each.as_json(), "place": pack.relocate(each.place)} for each in result.coverage]
    cases = [{"name": each.case.name, "place": pack.relocate(each.case.place), "about": "policies", "got": each.got,
              "problem": each.problem} for each in result.policies]  # fmt: skip
    cases += [{"name": each.trial.name, "place": pack.relocate(each.trial.place), "about": "hooks",
               "got": str(each.got.get("decision", "")), "problem": each.problem} for each in result.hooks]  # fmt: skip
    return {"pack": pack.name, "version": pack.offer.version, "where": where, "ok": not result.failure_count,
            "cases": cases,
            "skipped": [each.name for each in result.skipped],
            "coverage": {"percent": round(result.percent, 1), "rules": rules}}  # fmt: skip


def _print_test(pack: "Pack", where: str, result: "TestResult") -> None:
    from deedbook.format.terminal import plain, pluralise

    for each in result.policies:
        if each.problem:
            say(plain(f"FAILED {each.case.name} ({pack.relocate(each.case.place)}): {each.problem}"))
    for trial in result.hooks:
        if trial.problem:
            say(plain(f"FAILED {trial.trial.name} ({pack.relocate(trial.trial.place)}): {trial.problem}"))
    if where == "scratch":
        for part in result.coverage:
            if not part.covered:
                say(plain(f"never decided: {part.label} of {part.policy} ({pack.relocate(part.place)})"))
    passed = f"{result.count - result.failure_count} of {pluralise(result.count, 'case')} passed"
    if not result.count:
        passed = "no cases"
    if where == "scratch":
        covered = sum(each.covered for each in result.coverage)
        rules = f"{covered} of {pluralise(len(result.coverage), 'rule')} and defaults decided ({result.percent:.0f} %)"
        say(f"{plain(pack.title)}, alone: {passed}; {rules}")
        return
    skipped = (
        f"; {pluralise(len(result.skipped), 'case')} skipped, whose abilities are not here" if result.skipped else ""
    )
    say(f"{plain(pack.title)}, in this workspace: {passed}{skipped}")


# --- build ------------------------------------------------------------------------------------------------------------


@command.command("build", short_help="Build the wheel of a pack from its folder.")
@click.argument("folder", metavar="FOLDER")
@click.option("-o", "--out", metavar="DIR", required=True, help="The folder for the wheel; made if it is missing.")
@json_option
@click.pass_obj
def build(options: GlobalOptions, folder: str, out: str) -> int:
    """Build a wheel that pip installs, after `pack lint` found no errors; the same files give the same bytes.

    FOLDER has pack.yaml beside the folders of the pack, or is a Python project that is built by flit_core. Nothing is
    downloaded, and no code of the project runs.
    """
    from deedbook_pack.building import build_wheel

    made = build_wheel(Path(folder), Path(out))
    if options.json:
        as_json(
            {
                "schema_version": "v1",
                "wheel": str(made.path),
                "sha256": made.digest,
                "packs": list(made.packs),
                "distribution": made.distribution,
                "version": made.version,
            }
        )
        return 0
    say(display_path(made.path.absolute()))
    message(f"{made.distribution} {made.version} with {', '.join(made.packs)}; sha256 {made.digest}")
    return 0


# --- diff -------------------------------------------------------------------------------------------------------------


@command.command("diff", short_help="Show what an upgrade of a pack changes, also in recorded decisions.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--pack", "name", metavar="NAME", help="Which pack, if a folder or a wheel has several.")
@click.option("--limit", default=20, metavar="N", type=click.IntRange(0), help="List at most N decisions; 0 lists all.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also if a decision changed.")
@json_option
@click.pass_obj
def diff(options: GlobalOptions, old: str, new: str, name: str | None, limit: int, *, exit_zero: bool) -> int:
    """Compare two versions of a pack: the name of an installed one, a folder, or a wheel.

    In a workspace that names the pack, every recorded call, and every subject that a policy judged, is judged under
    both versions. Nothing is called, installed or written. The exit status is 1 if a recorded decision changed.
    """
    from deedbook.format.terminal import plain
    from deedbook.plugins.plugins import discover
    from deedbook_inspect.commands.whatif import list_ledgers
    from deedbook_pack.comparison import compare_packs
    from deedbook_pack.packages import choose_pack, open_packs

    catalogue = discover()
    with ExitStack() as held:
        before, after = (open_packs(each, held, catalogue) for each in (old, new))
        both = sorted({each.name for each in before} & {each.name for each in after})
        name = name or (both[0] if len(both) == 1 else None)
        pair = choose_pack(before, name, old), choose_pack(after, name, new)
        if pair[0].name != pair[1].name:
            raise click.UsageError(f"{pair[0].name} and {pair[1].name} are two packs; compare two versions of one")
        here = _find_user(options, pair[0], catalogue)
        ledgers = list_ledgers(options.workspace, (), everything=True) if here else []
        found = compare_packs(*pair, catalogue, root=here.root if here else None, ledgers=ledgers, limit=limit)
    if options.json:
        versions = {"old": _version(pair[0]), "new": _version(pair[1])}
        body = {"pack": pair[0].name, "versions": versions, "in_workspace": here is not None, **found.as_json()}
        as_json({"schema_version": "v1", **body})
    else:
        say(plain(f"{pair[0].title} → {pair[1].title}"))
        _print_comparison(found, used=here is not None)
    changed = found.decisions.changed_count or found.decisions.subjects.changed_count
    return CHANGED if changed and not exit_zero else 0


def _version(pack: "Pack") -> dict[str, str | None]:
    offer = pack.offer
    return {"distribution": offer.distribution, "version": offer.version, "digest": offer.digest}


def _print_comparison(found: "Comparison", *, used: bool) -> None:
    from deedbook.format.terminal import plain
    from deedbook_inspect.commands.whatif import print_result

    ways = (("looser", found.changes.looser), ("tighter", found.changes.tighter), ("changed", found.changes.other))
    for way, texts in ways:
        for text in texts:
            say(plain(f"charter {way}: {text}"))
    if not found.changes:
        say("charter: nothing changes")
    if used:
        print_result(found.decisions, found.sessions)
    else:
        message("this is no workspace that names the pack; run this command in one to judge its recorded calls")


# --- list -------------------------------------------------------------------------------------------------------------


@command.command("list", short_help="List the packs in force, and what each loosens and tightens.")
@profile_option
@json_option
@click.pass_obj
def listing(options: GlobalOptions, profile: str | None) -> int:
    """List the packs of the workspace: version, digest, contents, tests, and what each loosens and tightens.

    The effect of a pack is the difference between the charter with it and without it.
    """
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.workspace import read_workspace
    from deedbook_pack.overview import summarise

    catalogue = discover()
    found = summarise(read_workspace(options.workspace, profile, catalogue), catalogue)
    if options.json:
        as_json({"schema_version": "v1", "packs": [each.as_json() for each in found]})
        return 0
    for each in found:
        _print_summary(each)
    if not found:
        say("no packs are in force; name one under packs: in .system/deedbook.yaml")
    return 0


def _print_summary(each: "PackSummary") -> None:
    from deedbook.format.terminal import plain, pluralise

    digest = f"sha256 {each.digest}" if each.digest else "installed in place, without a digest"
    say(plain(f"{each.name}  {each.distribution} {each.version}  {digest}"))
    parts = [f"{section} {', '.join(names)}" for section, names in each.contains.items() if names]
    say(plain(f"  {'; '.join(parts) or 'nothing'}"))
    say(f"  {pluralise(each.rules, 'rule')}, {pluralise(each.cases, 'test case')}")
    for way, texts in (("looser", each.effect.looser), ("tighter", each.effect.tighter)):
        for text in texts:
            say(plain(f"  {way:8}{text}"))
