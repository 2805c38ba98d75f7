"""An examination for people, and as JUnit XML for continuous integration; pure."""

import re
from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from deedbook.format.terminal import plain, pluralise

from .attacks import AttackResult
from .runner import Examination

_LABELS: Final = {"holds": "holds", "not applicable": "-", "broken": "BROKEN", "error": "ERROR"}
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SUITE: Final = "deedbook guarantees"


def describe_results(examination: Examination) -> Iterator[tuple[str, str]]:
    """Yield lines for people, each with the status that it is about (empty: the summary)."""
    for result in examination.results:
        yield result.status, f"{_LABELS[result.status]:7} {plain(result.promise)}  [{result.id}]"
        yield result.status, f"        {plain(result.found)}"
        if result.change:
            yield result.status, f"        change: {plain(result.change)}"
    yield from (("", line) for line in _summary(examination))


def _summary(examination: Examination) -> Iterator[str]:
    held, broken, errors = (examination.count(status) for status in ("holds", "broken", "error"))
    verb = "holds" if held == 1 else "hold"
    failed = f"{broken} {'does' if broken == 1 else 'do'} not hold"
    unknown = f", {pluralise(errors, 'attack')} could not be made" if errors else ""
    idle = examination.count("not applicable")
    yield f"{pluralise(held, 'promise')} {verb}, {failed}{unknown}; {idle} not applicable"
    yield "attacked was a copy; its abilities had no effect, and it had no network and none of your keys and secrets"
    if examination.silenced:
        yield "this system does not let a user cut off the network, so hooks in processes of their own were not asked"
    if examination.left_out:
        yield f"{pluralise(examination.left_out, 'file')} of the workspace were too many or too large to be copied"
    fate = "is unchanged" if examination.unchanged else "CHANGED MEANWHILE"
    yield f"the original {fate}: {pluralise(examination.files, 'file')}, SHA-256 {examination.digest}"


def format_junit(examination: Examination) -> bytes:
    """Return the examination as JUnit XML: a promise that does not hold fails, one that does not apply is skipped."""
    total = sum(result.seconds for result in examination.results)
    counts = {
        "tests": str(len(examination.results) + 1),
        "failures": str(examination.count("broken") + (not examination.unchanged)),
        "errors": str(examination.count("error")),
        "skipped": str(examination.count("not applicable")),
        "time": f"{total:.3f}",
    }
    suites = Element(
        "testsuites", {"name": SUITE, **{name: counts[name] for name in ("tests", "failures", "errors", "time")}}
    )
    suite = SubElement(suites, "testsuite", {"name": SUITE, **counts})
    for result in examination.results:
        _add_case(suite, result)
    found = f"{examination.files} files, SHA-256 {examination.digest}"
    _add_case(
        suite,
        AttackResult(
            id="original-unchanged", promise="The attacks do not change the workspace.", found=found,
            status="holds" if examination.unchanged else "broken",
        ),
    )  # fmt: skip
    indent(suites)
    text: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add_case(suite: Element, result: AttackResult) -> None:
    named = {"classname": "deedbook.guarantees", "name": result.id, "time": f"{result.seconds:.3f}"}
    case = SubElement(suite, "testcase", named)
    if result.status == "not applicable":
        SubElement(case, "skipped", {"message": _text(result.found)})
    elif not result.well:
        tag = "failure" if result.status == "broken" else "error"
        inner = SubElement(case, tag, {"type": result.status, "message": _text(result.found)})
        inner.text = _text(f"{result.promise}\n{result.found}\nchange: {result.change}")
    else:
        SubElement(case, "system-out").text = _text(f"{result.promise}\n{result.found}")


def _text(text: str) -> str:
    """Return *text* without the characters that XML cannot hold."""
    return _NO_XML.sub("\ufffd", text)
