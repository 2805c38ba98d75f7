"""A charter bound to judge and not to act: nothing is constructed but what a judge may ask itself."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from deedbook.charter.bindings import CALL, POLICY_LIMIT, Freezer
from deedbook.charter.linker import Linker
from deedbook.contract import Handler, Host
from deedbook.format.schema import Schemas
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.bindings import Bindings
from deedbook.policy.charter import Charter, is_elsewhere
from deedbook.policy.fitting import Fitting

Trusts: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Asked about a plugin as a charter has it, before it is loaded: whether it may be asked."""


def trusts_all(_: Mapping[str, Any]) -> bool:
    """Trust every plugin that is installed."""
    return True


def freeze_for_judging(
    charter: Charter,
    catalogue: Catalogue,
    host: Host,
    schemas: Schemas,
    trusts: Trusts = trusts_all,
    root: Path | None = None,
) -> Bindings:
    """Bind *charter* so that its calls can be judged: no handler, no gate that is not pure, no hook of other events.

    Of the pure gates those are constructed whose plugins *trusts* accepts; the code of the others is not imported. Who
    judges has to know what a gate answered that is not constructed. *root* is the workspace, for calls that nobody has
    made yet (`bindings.freeze`). Raises `BindingError` with every fault.
    """
    return _Judging(charter, Linker(catalogue), host, schemas, trusts, root).bindings(lazily=True)


class _Judging(Freezer):
    """A binding of what judges alone: whoever would act, or may not be asked again, is not even constructed."""

    def __init__(
        self,
        charter: Charter,
        linker: Linker,
        host: Host,
        schemas: Schemas,
        trusts: Trusts,
        root: Path | None,
    ) -> None:
        super().__init__(charter, linker, host, schemas, root)
        self._trusts = trusts

    def hook(self, fitting: Fitting) -> None:
        if fitting.entry["event"] != "PreToolUse":
            return
        if self._is_asked(fitting.entry):
            super().hook(fitting)
        else:
            may = CALL | {"transform"} if fitting.entry["rewrites"] else CALL
            self._leave("PreToolUse", fitting, may, fitting.entry["timeout_ms"] / 1000)

    def policy(self, fitting: Fitting) -> None:
        if self._is_asked(fitting.entry):
            super().policy(fitting)
        else:
            self._leave("policy", fitting, CALL, POLICY_LIMIT)

    def actor(self, entry: Mapping[str, Any]) -> Handler:  # noqa: ARG002 - nobody's
        return _unasked

    def _is_asked(self, entry: Mapping[str, Any]) -> bool:
        if not entry["pure"] or is_elsewhere(entry):
            return False
        return self._trusts(self.document["plugins"]["/".join(entry["plugin"])])

    def _leave(self, at: str, fitting: Fitting, may: frozenset[str], limit: float) -> None:
        """Keep a gate that is not asked, as one that is not pure."""
        left = attrs.evolve(fitting, entry={**fitting.entry, "pure": False})
        self.keep(at, left, _unasked, may, limit)


def _unasked(*_: Any) -> Any:
    raise AssertionError("bound for judging only: nothing is called, and only pure gates are asked")
