"""Ledgers of older forms, each checked by the rules of its time."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from deedbook.format.lines import Lines
from deedbook_audit.report import Report
from deedbook_audit.upcasting.envelope_1_0 import VERSION
from deedbook_audit.upcasting.event_ledger import FORM as UNHASHED_FORM
from deedbook_audit.upcasting.seed_000 import FORM as SEED_000

from . import envelope_1_0, event_ledger, seed_000


def verify_older(path: str, form: str, lines: Lines) -> Report:
    """Check the *lines* of a ledger of an older *form*, which is called *path* in the report."""
    return _VERIFIERS[form](path, lines)


_VERIFIERS: Final[Mapping[str, Callable[[str, Lines], Report]]] = MappingProxyType(
    {SEED_000: seed_000.verify, VERSION: envelope_1_0.verify, UNHASHED_FORM: event_ledger.verify}
)
