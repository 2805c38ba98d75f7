"""The test cases of one pack, run against a workspace: that of the user, or a scratch workspace."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from deedbook.format.errors import DomainError, SourceError, raise_all
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import bindings_for_judging
from deedbook.plugins.plugins import Catalogue
from deedbook.plugins.policy_kinds import installed_kinds
from deedbook.policy.bindings import Bindings
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.trees import SourceTree
from deedbook_author import hook_cases, policy_cases
from deedbook_author.hook_bindings import bindings_for_hook_tests
from deedbook_author.hook_cases import HookCaseResult
from deedbook_author.policy_cases import Case, CaseResult, RuleCoverage

from .packages import Pack

T = TypeVar("T")


@attrs.frozen
class TestResult:
    """The results of a pack's cases, and the *coverage* of its rules.

    *skipped* are cases about abilities that the workspace does not declare.
    """

    __test__ = False  # no test of pytest

    policies: tuple[CaseResult, ...]
    hooks: tuple[HookCaseResult, ...]
    coverage: tuple[RuleCoverage, ...]
    skipped: tuple[Case, ...] = ()

    @property
    def count(self) -> int:
        """How many cases ran."""
        return len(self.policies) + len(self.hooks)

    @property
    def failure_count(self) -> int:
        """How many cases failed."""
        return sum(bool(each.problem) for each in self.policies) + sum(bool(each.problem) for each in self.hooks)

    @property
    def percent(self) -> float:
        """The share of the pack's rules that a case reaches."""
        return policy_cases.covered_percent(self.coverage)


def run_cases(pack: Pack, workspace: Workspace, catalogue: Catalogue, *, skip: bool) -> TestResult:
    """Run the cases of *pack* against *workspace*, which names it.

    With *skip*, cases about undeclared abilities are skipped: a workspace need not have all that a pack can guard.
    Raises `DeedbookError` where a file with cases, or the workspace, has faults.
    """
    cases = read_policy_cases(pack)
    about_hooks = _read(pack.tree(), hook_cases.FOLDER, hook_cases.read_cases)
    with bindings_for_judging(workspace, catalogue) as bindings:
        skipped = [case for case in cases if skip and not case.subject and case.ability not in bindings.abilities]
        found = [policy_cases.run_case(bindings, case) for case in cases if case not in skipped]
        coverage = policy_cases.coverage(bindings, found, installed_kinds(catalogue))
        own = _own_policies(bindings, pack)
    hooks: list[HookCaseResult] = []
    if about_hooks:
        with bindings_for_hook_tests(workspace, catalogue) as bindings:
            hooks = [hook_cases.run_case(bindings, case, workspace.state) for case in about_hooks]
    return TestResult(
        tuple(found), tuple(hooks), tuple(each for each in coverage if each.policy in own), tuple(skipped)
    )


def read_policy_cases(pack: Pack) -> list[Case]:
    """Return the cases beside the policies of *pack*; raises `SourceError` with every fault."""
    return _read(pack.tree(), policy_cases.FOLDER, policy_cases.read_cases)


def _read(tree: SourceTree, folder: str, read: Callable[[SourceTree, str, Schemas], list[T]]) -> list[T]:
    schemas = Schemas.load(data_folder("schemas"))
    faults: list[DomainError] = []
    found: list[T] = []
    for path in tree.tests(folder):
        try:
            found += read(tree, path, schemas)
        except SourceError as problem:
            faults += problem.errors
    raise_all(SourceError, faults)
    return found


def _own_policies(bindings: Bindings, pack: Pack) -> frozenset[str]:
    """Return the policies of the charter that are the pack's."""
    policies: Mapping[str, Any] = bindings.charter.document["policies"]
    return frozenset(name for name, entry in policies.items() if entry["place"].startswith(f"{pack.label}: "))
