"""A charter, bound to act: for each ability one immutable record of all that its calls need.

What decides about calls is bound by `judging`. On top of that, handlers are constructed here, and every hook, in this
process, on a thread or in a process of its own. What does not match costs nothing.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import attrs

from deedbook.contract import Handler, Host
from deedbook.format.schema import Schemas
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Persona, no_persona
from deedbook.policy.charter import Charter, is_apart, is_elsewhere
from deedbook.policy.completions import Completion
from deedbook.policy.fitting import Fitting
from deedbook.programs.threads import Threads

from .judging import JudgingBinder
from .linker import Linker


def freeze(
    charter: Charter,
    catalogue: Catalogue,
    host: Host,
    schemas: Schemas,
    *,
    persona: Persona = no_persona,
    lazily: bool = False,
    root: Path | None = None,
) -> Bindings:
    """Load, check and construct all that *charter* names; raises `BindingError` with every fault.

    *persona* reads the persona of a chosen agent, given what the charter says of it. *root* is where the
    workspace is. *lazily*: all but the hooks and policies is constructed when an ability is first used. That is for a
    charter that was constructed whole before, from the same code.
    """
    made = Binder(charter, Linker(catalogue), host, schemas, root).bindings(lazily=lazily)
    return attrs.evolve(made, persona=persona)


class Binder(JudgingBinder):
    """One binding of a charter, to act: every plugin that it names is constructed."""

    def hook(self, fitting: Fitting) -> None:
        """Keep a hook, constructed here or in a process of its own."""
        entry = fitting.entry
        if is_apart(entry):  # its process is killed at its limit, and needs none here
            from deedbook.plugins.isolation import apart

            self.keep_hook(fitting, apart(entry, self.document["plugins"], self.host), inf)
            return
        ask, limit = self.construct_hook(fitting)
        self.keep_hook(fitting, Threads(ask, limit) if is_elsewhere(entry) else ask, limit)

    def policy(self, fitting: Fitting) -> None:
        """Construct a policy and keep it."""
        self.keep_policy(fitting, self.construct(fitting.entry)[1])

    def construct_handler(self, entry: Mapping[str, Any]) -> Handler:
        """Construct the handler of an ability."""
        made: Handler = self.construct(entry)[1]
        return Completion(made) if entry["kind"] == "model" else made
