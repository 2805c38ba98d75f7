"""Show and revise the routing of models: `deedbook swe routing`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, confirm, json_option, principal_option, profile_option
from deedbook.cli.output import as_json, message, say, table
from deedbook.format.errors import BindingError, LedgerError, fault

from .lookup import find_definition, find_workspace

if TYPE_CHECKING:
    from deedbook import Object
    from deedbook.kernel import Kernel
    from deedbook.workspace.declarations import Workspace
    from deedbook_flow_swe.learning.revision import TierCount
    from deedbook_flow_swe.learning.routing import RoutingPolicy
    from deedbook_flow_swe.learning.workspace_events import LearnedIndex
    from deedbook_flow_swe.task_record import TaskRecord

pipeline_option = click.option("--pipeline", metavar="ID", help="The pipeline, if there are several.")
generated_option = click.option("--generated", is_flag=True, help="Count generated tasks as well; the record says so.")


@click.group("routing", cls=SuggestingGroup, short_help="Show and revise the routing of models.")
def routing() -> None:
    """Show which tiers of models led to rework, and revise the routing policy from that."""


# --- report -----------------------------------------------------------------------------------------------------------


@routing.command("report", short_help="Show which tiers led to rework.")
@pipeline_option
@generated_option
@profile_option
@json_option
@click.pass_obj
def report(options: GlobalOptions, pipeline: str | None, profile: str | None, *, generated: bool) -> int:
    """Show for each phase, rule and tier how many runs were sent back, and whether that is enough data.

    The percentage of the other tiers of the same phase stands beside it. A star marks the tier that is in force.
    """
    workspace = find_workspace(options, profile)
    definition = find_definition(workspace, pipeline)
    records = _select(workspace, definition.id, generated=generated)
    policy, revision = _find_in_force(definition.routing, definition.id, _read_learned(workspace))
    rows = _build_rows(policy, records)
    if options.json:
        terms = {"needed": policy.revision.tasks, "runs": policy.revision.runs}
        as_json(
            {
                "schema_version": "v1",
                "pipeline": definition.id,
                "digest": policy.digest,
                "revision": revision,
                "tasks": {"ended": len(records), "generated": sum(each.generated for each in records), **terms},
                "combinations": rows,
            }
        )
        return 0
    since = "of the charter" if revision is None else f"revised by event {revision} of the workspace ledger"
    say(f"{definition.id}: policy {policy.id} ({policy.digest[:12]}), {since}")
    say(f"{len(records)} tasks have ended; {policy.revision.tasks} are needed for a revision")
    if rows:
        table(
            [
                ("phase", "rule", "tier", "sent back", "share", "other tiers", "verdict"),
                *((*_cells(each), each["verdict"]) for each in rows),
            ]
        )
    return 0


def _build_rows(policy: "RoutingPolicy", records: "Sequence[TaskRecord]") -> list[dict[str, Any]]:
    from deedbook_flow_swe.learning.revision import count_tiers, list_rules

    counts = count_tiers(records)
    present = set(list_rules(policy))
    return [
        {
            **each.as_json(),
            "percent": round(each.percent, 1),
            "others_percent": _find_others(each, counts),
            "in_force": (each.phase, each.rule, each.tier) in present,
            "verdict": each.judge(policy.revision),
        }
        for each in counts
    ]


def _find_others(count: "TierCount", counts: "Iterable[TierCount]") -> float | None:
    """Return the percentage of runs of the same phase with other tiers that were sent back."""
    others = [each for each in counts if each.phase == count.phase and each.tier != count.tier]
    runs = sum(each.runs for each in others)
    return round(100 * sum(each.sent_back for each in others) / runs, 1) if runs else None


def _cells(row: "Object") -> tuple[str, ...]:
    tier = f"{row['tier']}{' *' if row['in_force'] else ''}"
    others = "-" if row["others_percent"] is None else f"{row['others_percent']:g} %"
    return row["phase"], row["rule"], tier, f"{row['sent_back']} of {row['runs']}", f"{row['percent']:g} %", others


# --- revise -----------------------------------------------------------------------------------------------------------


@routing.command("revise", short_help="Revise the routing policy from data.")
@pipeline_option
@generated_option
@click.option("--dry-run", is_flag=True, help="Show the difference, and record nothing.")
@click.option("--yes", "-y", is_flag=True, help="Record the revision without asking.")
@profile_option
@principal_option
@json_option
@click.pass_obj
def revise(
    options: GlobalOptions, pipeline: str | None, profile: str | None, principal: str | None, *, generated: bool,
    dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Compute a revision of the routing policy from the tasks that have ended, show the difference, and record it.

    The revision becomes an event of the workspace ledger that names the tasks. It is in force for tasks that begin
    later. The charter stays as it is, so this works with `lock: required`. Exit status 1 if there is not enough data.
    """
    from deedbook_flow_swe.learning.revision import build_revision

    workspace = find_workspace(options, profile)
    definition = find_definition(workspace, pipeline)
    records = _select(workspace, definition.id, generated=generated)
    before, _ = _find_in_force(definition.routing, definition.id, _read_learned(workspace))
    _require_tasks(before, records)
    payload = build_revision(definition.id, _require_routing(definition.routing, definition.id), before, records)
    changes = payload["changes"]
    _show_changes(changes, quiet=options.json)
    seq = None
    if changes and not dry_run and confirm("Record this revision?", yes=yes):
        seq = _record(options, profile, principal, payload)
        message(f"recorded as event {seq} of the workspace ledger; tasks that begin from now on use it")
    if options.json:
        digests = {name: payload[name] for name in ("from_digest", "to_digest")}
        told = {"tasks": len(records), "generated": payload["generated"], "recorded": seq}
        as_json({"schema_version": "v1", "pipeline": definition.id, **digests, "changes": changes, **told})
    return 0


def _show_changes(changes: "Sequence[Object]", *, quiet: bool) -> None:
    if quiet:
        return
    if not changes:
        say("the data gives no reason for a change")
    for each in changes:
        share = f"{each['sent_back']} of {each['runs']} runs were sent back"
        say(f"{each['phase']}, rule {each['rule']}: {each['from_tier']} → {each['to_tier']} ({share})")


def _record(options: GlobalOptions, profile: str | None, principal: str | None, payload: dict[str, Any]) -> int:
    """Record the revision of a pipeline in the workspace ledger, unless another one was recorded meanwhile."""
    from deedbook.kernel import open_kernel
    from deedbook_flow_swe.learning.workspace_events import ROUTING_REVISED, LearnedIndex, build_entry

    with open_kernel(options.workspace, profile=profile) as kernel:
        who = kernel.principal(principal).id if principal else "local"
        base = _charter_policy(kernel, payload["pipeline"])
        index = LearnedIndex.load(kernel.ledger)

        def check() -> None:
            now, _ = _find_in_force(base, payload["pipeline"], index)
            if now.digest != payload["from_digest"]:
                why = "the routing policy in force changed meanwhile; run `deedbook swe routing revise` again"
                raise LedgerError(fault("WRITE_CONFLICT", why, retryable=True))

        entry = build_entry(kernel.ledger, ROUTING_REVISED, payload, principal=who)
        return kernel.ledger.append([entry], durable=True, check=check)


def _charter_policy(kernel: "Kernel", pipeline: str) -> "Object":
    """Return the routing policy that the charter in force has for a pipeline."""
    from deedbook_flow_swe.learning.policy_kinds import ROUTING, name_policy

    entry = kernel.bindings.charter.document["policies"][name_policy(ROUTING, pipeline)]
    found: Object = entry["settings"]["policy"]
    return found


# --- what both read ---------------------------------------------------------------------------------------------------


def _select(workspace: "Workspace", pipeline: str, *, generated: bool) -> "list[TaskRecord]":
    from deedbook_flow_swe.learning.ledger_files import read_records
    from deedbook_flow_swe.learning.revision import select_evidence

    return select_evidence(read_records(workspace.state), pipeline, generated=generated)


def _read_learned(workspace: "Workspace") -> "LearnedIndex":
    from deedbook_flow_swe.learning.ledger_files import read_learned

    return read_learned(workspace.state)


def _find_in_force(
    routing_policy: "Object | None", pipeline: str, learned: "LearnedIndex"
) -> "tuple[RoutingPolicy, int | None]":
    from deedbook_flow_swe.learning.revision import find_in_force
    from deedbook_flow_swe.learning.routing import RoutingPolicy

    learned.require_sound()
    base = _require_routing(routing_policy, pipeline)
    policy, revision = find_in_force(base, learned.revisions.get(pipeline))
    return RoutingPolicy.parse(policy), revision


def _require_routing(routing_policy: "Object | None", pipeline: str) -> "Object":
    if routing_policy is None:
        why = f"the pipeline {pipeline} has no routing policy; name one with `routing:` in its pipeline.yaml"
        raise BindingError(fault("USAGE", why))
    return routing_policy


def _require_tasks(policy: "RoutingPolicy", records: "Sequence[TaskRecord]") -> None:
    if len(records) < policy.revision.tasks:
        why = f"{len(records)} of {policy.revision.tasks} tasks have ended; a revision needs more data"
        raise BindingError(fault("NOT_ENOUGH_DATA", why))
