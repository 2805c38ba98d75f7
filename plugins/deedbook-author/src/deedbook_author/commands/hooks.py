"""List the hooks, and test them."""

from pathlib import Path
from typing import Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, say, table

SECTION: Final = "Workspace"


@data_command
@click.group("hooks", cls=SuggestingGroup, invoke_without_command=True)
@profile_option
@json_option
@click.pass_context
def command(ctx: click.Context, profile: str | None) -> int:
    """List the hooks: their event, isolation and place, and the abilities that they match."""
    if ctx.invoked_subcommand is not None:
        return 0
    from deedbook.contract.lifecycle import EVENTS
    from deedbook.kernel import bindings_for_judging
    from deedbook.policy.fitting import facts_of, fittings
    from deedbook.workspace.workspace import read_workspace

    options = ctx.find_object(GlobalOptions)
    assert options is not None
    with bindings_for_judging(read_workspace(options.workspace, profile)) as bindings:
        document = bindings.charter.document
    rows: list[dict[str, Any]] = []
    for fit in sorted(fittings(document, "hooks"), key=lambda fit: fit.name):
        event = fit.entry["event"]
        fits = [
            name
            for name, entry in sorted(document["abilities"].items())
            if EVENTS[event].call
            and fit.fits(facts_of(name, entry), [each for names in entry["hooks"].values() for each in names])
        ]
        isolation = fit.entry.get("isolation", "inline")
        rows.append(
            {"id": fit.name, "event": event, "isolation": isolation, "place": fit.entry["place"], "abilities": fits}
        )
    if options.json:
        as_json({"schema_version": "v1", "hooks": rows})
    elif rows:
        table((row["id"], row["event"], row["isolation"], row["place"], ", ".join(row["abilities"])) for row in rows)
    else:
        say("no hooks are defined; add one in .system/hooks/")
    return 0


@command.command("test", short_help="Put the cases of FILE, or of all test files, to the real hooks.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@profile_option
@json_option
@click.pass_obj
def test(options: GlobalOptions, files: tuple[str, ...], profile: str | None) -> int:
    """Run the cases in FILE, or in all `*.test.yaml` beside the hooks, against the real hooks; status 1 if one fails.

    The hooks are those of the current sources, pinned or not; nothing is recorded and nothing comes into force.
    """
    from deedbook.format.files import Folder
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.format.terminal import plain
    from deedbook.workspace.trees import list_trees
    from deedbook.workspace.workspace import read_workspace
    from deedbook_author import hook_cases
    from deedbook_author.hook_bindings import bindings_for_hook_tests

    source = read_workspace(options.workspace, profile)
    root = source.root
    schemas = Schemas.load(data_folder("schemas"))
    with Folder.at(root) as folder:
        own, *packed = list_trees(folder, source)
        named = [(own, _below(root, path)) for path in files]
        beside = [(tree, path) for tree in (own, *packed) for path in tree.tests(hook_cases.FOLDER)]
        cases = [case for tree, path in named or beside for case in hook_cases.read_cases(tree, path, schemas)]
    if not cases:
        message(f"there are no tests; write some in .system/{hook_cases.FOLDER}/NAME.test.yaml")
    with bindings_for_hook_tests(source) as bindings:
        found = [hook_cases.run_case(bindings, case, source.state) for case in cases]
    failed = [each for each in found if each.problem]
    if options.json:
        as_json({"schema_version": "v1", "ok": not failed, "cases": [each.as_json() for each in found]})
    else:
        for each in failed:
            say(plain(f"FAILED {each.trial.name} ({each.trial.place}): {each.problem}"))
        say(f"{len(found) - len(failed)} of {len(found)} {'case' if len(found) == 1 else 'cases'} passed")
    return 1 if failed else 0


def _below(root: Path, path: str) -> str:
    whole = Path(path).absolute()
    if not whole.is_relative_to(root):
        raise click.UsageError(f"{path} is outside the workspace {root}")
    return str(whole.relative_to(root))
