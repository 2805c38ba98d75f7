"""The whole of a verification: what was selected is checked, and then who vouches for it."""

from collections.abc import Sequence

import attrs

from deedbook.format.lines import Watch
from deedbook.format.report import Report

from .checking import Named, check
from .selection import Selection
from .trust import OwnKeys, TrustInputs, TrustReport, check_trust, no_keys
from .verification.verdict import Verdict, conclude


@attrs.frozen
class Verification:
    """What was selected, a report on each ledger, who vouches for them, and what all of it comes to."""

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
    named: Named = str,
) -> Verification:
    """Verify what was selected; *inputs* is what the reader trusts. See `checking.check` and `trust.check_trust`."""
    reports = check(selection, plugins=plugins, jobs=jobs, watch=watch, named=named)
    trust = check_trust(selection, reports, inputs or TrustInputs(), own_keys)
    verdict = conclude(reports, trust.contradictions, trust.covered, selection.unchecked)
    return Verification(selection, reports, trust, verdict)
