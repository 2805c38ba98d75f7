"""The aggregate of a phase (``review_aggregate_v1``): what the findings of its reviewers come to; pure.

Findings with the same file, line and title are one finding. Where reviewers disagree, the conservative choice counts:
the higher severity, and the later of safe_auto, gated_auto, manual, advisory. Reviewers that agree raise the confidence
by one step for each further one whose evidence is its own: two reviewers over one run of a tool count once. Evidence
is what the ledger has of a reviewer's pass, and never what a finding claims. The result is the same for any order of
reports and findings.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from deedbook import Object
from deedbook.format.canonical import encode

SEVERITIES: Final = ("P0", "P1", "P2", "P3")
"""From the highest severity to the lowest."""
CLASSES: Final = ("safe_auto", "gated_auto", "manual", "advisory")
"""From the class that may be applied without a review to the one that is never applied."""
ROUTES: Final = ("apply", "gated", "manual", "advisory")
"""From the loosest route of a finding to the strictest; each is that of the class in the same place."""
_WORDS: Final = {"critical": "P0", "major": "P1", "minor": "P2", "info": "P3"}
_WEIGHTS: Final = {"P0": 1000, "P1": 100, "P2": 10, "P3": 1}
_STEP: Final = 25
_CERTAIN: Final = 100
_MOST_EVIDENCE: Final = 100

Fingerprint: TypeAlias = tuple[str, int, str]
"""File, line (0 without one) and title of a finding; the title without differences of case and white space."""


class ReportRefused(Exception):  # noqa: N818 - a state of a report
    """A report that counts for nothing; the message says why."""


@attrs.frozen(kw_only=True)
class Report:
    """What one *reviewer* (a persona) reported: its *findings* in the form ``finding_v1``.

    *evidence* has the digests of the recorded outcomes that they rest on.
    """

    reviewer: str
    findings: Sequence[Object]
    evidence: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class Coverage:
    """How many personas were *asked*, and those that *failed*, were refused or never answered."""

    asked: int
    failed: Collection[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the member ``coverage`` of an aggregate."""
        return {"asked": self.asked, "reported": self.asked - len(self.failed), "failed": sorted(self.failed)}


@attrs.frozen(kw_only=True)
class FindingAnswer:
    """A policy's answer about a finding: *outcome*, the *route* that it names, if it does, and whether it *suppresses*.

    An answer that neither allows, nor advises, nor suppresses leaves the finding to a person.
    """

    outcome: str
    route: str = ""
    suppresses: bool = False


def check_report(report: Report, *, personas: Collection[str], authors: Collection[str]) -> None:
    """Raise `ReportRefused` for a report that must not count, as a whole.

    *personas* are those of the phase; *authors* are those whose output is reviewed.
    """
    if report.reviewer in authors:
        raise ReportRefused(f"{report.reviewer} reviews its own output; name another persona for the review")
    for index, finding in enumerate(report.findings):
        name = f"findings[{index}] ({finding['id']}: {finding['title']})"
        if "file" not in finding:
            raise ReportRefused(f"{name} has no place: expected the member file, and line where there is one")
        claimed = finding["reviewer"]
        if claimed != report.reviewer and claimed in personas:
            raise ReportRefused(f"{name} is said to be of {claimed}; a persona reports for itself only")


def merge_findings(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """Return the findings of *reports*, merged by fingerprint: by severity, then by place and title."""
    groups: dict[Fingerprint, list[_ReportedFinding]] = {}
    for report in reports:
        for finding in report.findings:
            groups.setdefault(fingerprint(finding), []).append(
                _ReportedFinding(report.reviewer, finding, report.evidence)
            )
    return sorted((_merge(group) for group in groups.values()), key=_order)


def build_aggregate(
    findings: Sequence[Object], answers: Mapping[Fingerprint, Sequence[FindingAnswer]], coverage: Coverage
) -> dict[str, Any]:
    """Return the aggregate of merged *findings*, with the *answers* of policies to each.

    A finding with an advisory answer is of the class ``advisory``. The verdict is ``fail`` if a finding of severity P0
    counts, or if no persona reported.
    """
    counted: list[dict[str, Any]] = []
    suppressed: list[dict[str, Any]] = []
    before: list[dict[str, Any]] = []
    for finding in findings:
        said = answers.get(fingerprint(finding), ())
        routed = _apply_answers(finding, said)
        hidden = any(answer.suppresses for answer in said)
        (suppressed if hidden else before if finding.get("pre_existing") else counted).append(routed)
    unresolved = sum(finding["severity"] == SEVERITIES[0] for finding in counted)
    told = coverage.as_json()
    silent = told["asked"] > 0 and told["reported"] == 0
    return {
        "findings": counted,
        "suppressed": suppressed,
        "pre_existing": before,
        "verdict": "fail" if unresolved or silent else "pass",
        "coverage": told,
        "p0_unresolved": unresolved,
        "schema_version": "v1",
    }


def grade(aggregate: Object) -> int:
    """Return how good an aggregate is: 0 without findings, less for each finding that counts, by its severity."""
    return -sum(_WEIGHTS[finding["severity"]] for finding in aggregate["findings"])


def fingerprint(finding: Object) -> Fingerprint:
    """Return what makes two findings the same."""
    return str(finding.get("file", "")), int(finding.get("line", 0)), " ".join(str(finding["title"]).split()).casefold()


def read_severity(said: str) -> str:
    """Return a severity as P0 to P3; critical, major, minor and info are read as these."""
    return _WORDS.get(said, said)


# --- one finding ------------------------------------------------------------------------------------------------------


@attrs.frozen
class _ReportedFinding:
    """One finding as one reviewer reported it, and the evidence of that reviewer."""

    reviewer: str
    finding: Object
    evidence: frozenset[str]

    @property
    def severity(self) -> str:
        return read_severity(self.finding["severity"])

    @property
    def rank(self) -> tuple[int, int, str, bytes]:
        """The order in which the texts of findings are preferred."""
        severity, confidence = SEVERITIES.index(self.severity), self.finding["confidence"]
        return severity, -confidence, self.reviewer, encode(dict(self.finding))


def _merge(group: Sequence[_ReportedFinding]) -> dict[str, Any]:
    ranked = sorted(group, key=lambda said: said.rank)
    first = ranked[0]
    independent = list(_split_by_evidence(ranked))
    raised = max(said.finding["confidence"] for said in group) + _STEP * (len(independent) - 1)
    agreed = sorted({said.reviewer for others in independent[1:] for said in others} - {first.reviewer})
    known = all(said.finding.get("pre_existing", False) for said in group)
    evidence = sorted({each for said in group for each in said.evidence})[:_MOST_EVIDENCE]
    return {
        **{key: value for key, value in first.finding.items() if key not in ("pre_existing", "evidence")},
        "severity": min((said.severity for said in group), key=SEVERITIES.index),
        "autofix_class": max((said.finding["autofix_class"] for said in group), key=CLASSES.index),
        "confidence": min(raised, _CERTAIN),
        **({"pre_existing": True} if known else {}),
        **({"evidence": evidence} if evidence else {}),
        **({"agreed": agreed} if agreed else {}),
    }


def _split_by_evidence(ranked: Sequence[_ReportedFinding]) -> Iterator[list[_ReportedFinding]]:
    """Yield the groups that share neither a reviewer nor any evidence, the one of the first finding first.

    A finding without evidence confirms no other one; if there is nothing else, all are one group.
    """
    left = [said for said in ranked if said.evidence]
    if not left:
        yield list(ranked)
    while left:
        group, left = [left[0]], left[1:]
        while joined := [said for said in left if any(_is_same_source(said, other) for other in group)]:
            group += joined
            left = [said for said in left if said not in joined]
        yield group


def _is_same_source(one: _ReportedFinding, other: _ReportedFinding) -> bool:
    return one.reviewer == other.reviewer or not one.evidence.isdisjoint(other.evidence)


def _apply_answers(finding: Object, answers: Sequence[FindingAnswer]) -> dict[str, Any]:
    """Return *finding* with the strictest route that policies named, and the class that follows from it."""
    routes = [answer.route for answer in answers if answer.route]
    routes += [_route_of(answer.outcome) for answer in answers if answer.outcome != "allow"]
    if not routes:
        return dict(finding)
    route = max(routes, key=ROUTES.index)
    least = CLASSES[ROUTES.index(route)]
    return {
        **finding,
        "route": route,
        "autofix_class": max((finding["autofix_class"], least), key=CLASSES.index),
    }


def _route_of(outcome: str) -> str:
    """Return the route of a finding with an answer that is no allowance."""
    return "advisory" if outcome == "advisory" else "manual"


def _order(finding: Object) -> tuple[int, Fingerprint]:
    return SEVERITIES.index(finding["severity"]), fingerprint(finding)
