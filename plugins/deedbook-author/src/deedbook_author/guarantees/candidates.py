"""Calls to attack a workspace with: from the cases of its policy tests, its schemas, and the conditions of its rules.

Each call is judged by the workspace's policies alone, compiled from the sources anew and enforced also where the
workspace observes: this says what the real door has to decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.charter.instances import instances, unfold
from deedbook.contract.pointers import split_pointer
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import bindings_for_judging
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import BoundAbility
from deedbook.policy.match import AbilityFacts, Match
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.trees import list_trees
from deedbook.workspace.workspace import load_profile
from deedbook_author.policy_cases import FOLDER, Case, read_cases, run_case

_MOST_ABILITIES: Final = 200
_MOST_CALLS: Final = 1_500
_PER_SCHEMA: Final = 4
_PRINCIPALS: Final = 8
_FILE: Final = "guarantee.txt"


@attrs.frozen(kw_only=True)
class JudgedCall:
    """A call, and what the workspace's policies decide: *outcome* is empty if they cannot be asked without a session.

    *by* is the deciding policy and rule for people; *paths* are the JSON pointers of its path arguments.
    """

    ability: str
    kind: str
    effects: str
    args: Mapping[str, Any] = attrs.field(eq=False)
    principal: str
    outcome: str
    by: str
    paths: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = canonical.encode(dict(self.args)).decode()
        return f"{self.ability} {shown if len(shown) <= 120 else f'{shown[:117]}…'} by {self.principal}"


def judge_candidates(root: Path, profile: str | None, catalogue: Catalogue) -> list[JudgedCall]:
    """Return calls of the workspace at *root*, each judged by its policies; none is made."""
    workspace = load_profile(root, profile, catalogue)
    with bindings_for_judging(workspace, catalogue) as bindings:
        cases = islice(_cases(workspace, bindings), _MOST_CALLS)
        judged = [_judge(bindings, case) for case in _distinct(cases)]
    return sorted(judged, key=lambda call: len(canonical.encode(dict(call.args))))


def _judge(bindings: Bindings, case: Case) -> JudgedCall:
    bound = bindings.abilities[case.ability]
    outcome = by = ""
    if not bound.rewriters:  # a hook that changes the arguments decides what policies see
        found = run_case(bindings, case)
        who = found.decided_by
        outcome, by = found.got, str(who.get("rule") or who.get("place") or who.get("policy") or "")
    return JudgedCall(
        ability=bound.id, kind=bound.kind, effects=bound.effects, args=dict(case.args), principal=case.principal,
        outcome=outcome, by=by, paths=bound.paths,
    )  # fmt: skip


def _distinct(cases: Iterator[Case]) -> Iterator[Case]:
    seen: set[tuple[str, str, bytes]] = set()
    for case in cases:
        with suppress(DeedbookError):  # arguments that no call can have
            key = (case.ability, case.principal, canonical.admit(dict(case.args)))
            if key not in seen:
                seen.add(key)
                yield case


def _cases(workspace: Workspace, bindings: Bindings) -> Iterator[Case]:
    yield from _read_tested_calls(workspace, bindings)
    people = ["local", *islice(sorted(bindings.charter.document["principals"]), _PRINCIPALS)]
    matches = list(_matches(bindings.charter.document))
    for name in islice(sorted(bindings.abilities), _MOST_ABILITIES):
        bound = bindings.abilities[name]
        for args in _arguments(bound, matches):
            yield from (Case(name="", place="", expect="", ability=name, args=args, principal=who) for who in people)


def _read_tested_calls(workspace: Workspace, bindings: Bindings) -> Iterator[Case]:
    """Yield the calls in the workspace's own policy tests that depend on nothing but principal and arguments."""
    schemas = Schemas.load(data_folder("schemas"))
    with Folder.at(workspace.root) as folder:
        tree = list_trees(folder, workspace)[0]
        for path in tree.tests(FOLDER):
            with suppress(DeedbookError):  # `deedbook policy test` reports it
                for case in read_cases(tree, path, schemas):
                    plain = not (case.subject or case.roles or case.role or case.skill or case.facts or case.policies)
                    if plain and case.ability in bindings.abilities:
                        yield case


# --- arguments --------------------------------------------------------------------------------------------------------


def _arguments(bound: BoundAbility, matches: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield arguments that the ability takes: plain ones, then such that meet the conditions of each match."""
    plain = [value for value in islice(instances(unfold(bound.takes_document)), 24) if isinstance(value, dict)]
    yield from plain[:_PER_SCHEMA]
    for match in matches:
        if _could_match(match, bound):
            for base in (plain[0] if plain else {}, plain[-1] if plain else {}):
                args = canonical.decode(canonical.encode(base))
                _meet(match, args, bound.paths)
                if bound.takes.valid(args):
                    yield args
                    break


def _could_match(match: Mapping[str, Any], bound: BoundAbility) -> bool:
    facts = AbilityFacts(bound.id, bound.kind, bound.effects, bound.tags, bound.scopes, bound.paths)
    with suppress(DeedbookError):
        return Match.compile(dict(match)).could_match(facts)
    return False


def _matches(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the matches of policies and of their rules, as far as they say something about arguments."""
    for policy in document["policies"].values():
        yield from (each for each in _matches_in([policy["match"], policy["settings"]]) if {"args", "paths"} & {*each})


def _matches_in(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if {"args", "paths"} & {*value}:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _matches_in(each)


def _meet(match: Mapping[str, Any], args: dict[str, Any], paths: Sequence[str]) -> None:
    """Change *args* so that they meet the conditions of a match, as far as an example is easily found."""
    globs = match.get("paths", ())
    for glob in [globs] if isinstance(globs, str) else list(globs)[:1]:
        for pointer in paths:
            name = split_pointer(pointer)[0]
            if name in args or pointer == paths[0]:
                path = glob.replace("**", "a").replace("*", "a")
                args[name] = [path] if isinstance(args.get(name), list) else path
                break
    for pointer, condition in match.get("args", {}).items():
        _set(args, split_pointer(pointer), _example(condition))


def _example(condition: Any) -> Any:
    """Return a value that meets a condition of a match."""
    if isinstance(condition, list):
        return condition[0] if condition else ""
    if not isinstance(condition, Mapping):
        return condition
    if "under" in condition:
        folder = _first(condition["under"])
        return _FILE if folder == "." else f"{folder}/{_FILE}"
    if "like" in condition:
        return str(_first(condition["like"])).replace("**", "a").replace("*", "a")
    return _first(next((condition[word] for word in ("equals", "in", "min", "max") if word in condition), "a"))


def _first(value: Any) -> Any:
    return (value[0] if value else "") if isinstance(value, list) else value


def _set(args: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    """Set the member at *steps*; objects on the way are made, other values are left."""
    for step in steps[:-1]:
        inner = args.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        args = inner
    args[steps[-1]] = value
