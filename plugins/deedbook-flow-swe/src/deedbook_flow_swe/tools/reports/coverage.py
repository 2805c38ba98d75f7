"""The JSON report of coverage.py; pure."""

from collections.abc import Sequence

from deedbook import IntakeError, parse
from deedbook.policy.limits import FileList

from .subject import ReportRefused, as_count, as_object


def read_coverage(text: str, files: Sequence[str] | None, without: Sequence[str] = ()) -> float | None:
    """Return how many of 100 statements were reached, in the files that fit the globs *files* (``None``: in all).

    The files *without* are left out: the tests themselves. ``None`` if there is no statement. Raises `ReportRefused`.
    """
    try:
        document = as_object(parse(text.encode("utf-8", "surrogatepass")), "the report of coverage")
    except IntakeError as problem:
        raise ReportRefused(f"the report of coverage is no JSON: {str(problem)[:200]}") from None
    fitting = None if files is None else FileList.compile(files)
    statements = covered = 0
    for path, file in as_object(document.get("files"), "files of the report of coverage").items():
        if path in without or (fitting is not None and not fitting.fits(path)):
            continue
        summary = as_object(as_object(file, path).get("summary"), f"the summary of {path}")
        own = as_count(summary.get("num_statements"), f"num_statements of {path}")
        reached = as_count(summary.get("covered_lines"), f"covered_lines of {path}")
        if reached > own:
            raise ReportRefused(f"the report of coverage says that {reached} of {own} lines of {path} were reached")
        statements, covered = statements + own, covered + reached
    return round(100 * covered / statements, 2) if statements else None
