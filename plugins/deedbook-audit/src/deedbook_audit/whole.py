"""A whole verification: the selected ledgers are checked, and then the trust in them."""

from collections.abc import Sequence

import attrs

from deedbook.format.lines import Watch

from .checking import FileNamer, check_ledgers
from .report import Report
from .selection import Selection
from .trust import OwnKeys, TrustInputs, TrustReport, check_trust, no_keys
from .verification.verdict import Verdict, conclude


@attrs.frozen
class Verification:
    """The selection, a report on each ledger, the trust report, and the verdict."""

    selection: Selection
    reports: Sequence[Report]
    trust: TrustReport
    verdict: Verdict


def verify(
    selection: Selection,
    inputs: TrustInputs | None = None,
    *,
    own_keys: OwnKeys = no_keys,
    plugins: bool = False,
    jobs: int = 1,
    watch: Watch | None = None,
    named: FileNamer = str,
) -> Verification:
    """Verify the *selection*; *inputs* is what the reader trusts. See `checking.check_ledgers`, `trust.check_trust`."""
    reports = check_ledgers(selection, plugins=plugins, jobs=jobs, watch=watch, namer=named)
    trust = check_trust(selection, reports, inputs or TrustInputs(), own_keys)
    verdict = conclude(reports, trust.contradictions, trust.covered, selection.unchecked)
    return Verification(selection, reports, trust, verdict)
