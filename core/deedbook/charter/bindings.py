"""Bind a charter for execution: one immutable record for each ability with everything that its calls need.

`judging` binds what decides about calls. This module adds the handlers and every hook: in this process, on a thread or
in a process of its own. Hooks and policies that cannot match an ability cost nothing at its calls.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from deedbook.contract import Handler, Host
from deedbook.format.schema import Schemas
from deedbook.plugins.host import WorkspaceHost
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Persona, no_persona
from deedbook.policy.charter import Charter, is_asynchronous, is_isolated
from deedbook.policy.fitting import Fitting
from deedbook.workspace.trust import check_programs

from .judging import JudgingBinder
from .linker import Linker

if TYPE_CHECKING:
    from deedbook.plugins.call_files import CallFiles


def bind(
    charter: Charter,
    catalogue: Catalogue,
    host: Host,
    schemas: Schemas,
    *,
    persona: Persona = no_persona,
    lazily: bool = False,
    root: Path | None = None,
) -> Bindings:
    """Load, check and construct everything that *charter* names; raises `BindingError` with every fault.

    *persona* reads the persona of a chosen agent from its entry in the charter. *root* is the folder of the workspace.
    With *lazily*, only hooks and policies are constructed now; an ability is constructed at its first use. Use *lazily*
    only for a charter that was constructed completely before, from the same code.
    """
    made = Binder(charter, Linker(catalogue), host, schemas, root).bindings(lazily=lazily)
    return attrs.evolve(made, persona=persona)


class Binder(JudgingBinder):
    """Binds a charter for execution: constructs every plugin that it names."""

    def hook(self, fitting: Fitting) -> None:
        """Add a hook, constructed here or in a process of its own."""
        entry = fitting.entry
        if is_isolated(entry):  # the process has its own limit and is killed there
            from deedbook.plugins.isolation import isolate_hook

            self.keep_hook(fitting, isolate_hook(entry, self.document["plugins"], self.host), inf)
            return
        ask, limit = self.construct_hook(fitting)
        if is_asynchronous(entry):
            from deedbook.programs.threads import HookThreads

            ask = HookThreads(ask, limit)
        self.keep_hook(fitting, ask, limit)

    def policy(self, fitting: Fitting) -> None:
        """Construct a policy and add it."""
        self.keep_policy(fitting, self.construct(fitting.entry)[1])

    def construct_handler(self, entry: Mapping[str, Any]) -> "tuple[Handler, CallFiles | None]":
        """Construct the handler of an ability with a host of its own, which knows the limits of its calls."""
        from deedbook.plugins.call_files import CallFiles

        if self.root is not None:
            check_programs(entry["settings"], self.root)
        calls, host = CallFiles(entry.get("files")), self.host
        if isinstance(host, WorkspaceHost):
            host = host.for_handler(calls)
        with calls.enter(None):  # the call that needs the ability first may be limited
            linked, made = self.construct(entry, host)
        if entry["kind"] != "model":
            return made, calls
        from deedbook.policy.completions import Completion

        return Completion(made, images=linked.spec.images), calls
