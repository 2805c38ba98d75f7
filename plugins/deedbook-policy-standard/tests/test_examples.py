"""The examples of the README and of docs/policies.md about subjects are loaded and decide as their tables say."""

import re
from pathlib import Path

from deedbook.contract import Principal, SubjectCase
from deedbook_policy_standard.findings import SeverityRouting

HERE = Path(__file__).parents[1]
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "policies.md")
KINDS = ("confidence-gating", "severity-routing", "loop-halt", "mode-dispatch", "role-permissions")
WHO = Principal("local", "cli")


def examples():
    """Return the YAML of each example about subjects, by the id of the policy."""
    found = {}
    for page in PAGES:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            if re.search(rf"^kind: ({'|'.join(KINDS)})$", block, re.MULTILINE):
                found[re.search(r"^id: (.*)$", block, re.MULTILINE)[1]] = block
    return found


def test_every_example_is_a_policy_of_a_workspace(lab):
    found = examples()
    assert {"count-findings", "personas", "route-findings", "bound-loops"} <= found.keys()
    for name, block in found.items():
        lab.write(f"policies/{name}.yaml", block)
    assert set(lab.kernel().bindings.charter.document["policies"]) == set(found)


def test_the_table_says_how_findings_are_routed(lab):
    lab.write("policies/route-findings.yaml", examples()["route-findings"])
    policy = SeverityRouting(lab.kernel().bindings.charter.document["policies"]["route-findings"]["settings"], None)
    page = PAGES[1].read_text(encoding="utf-8")
    table = page[page.index("| severity | autofix_class |") :].split("\n\n")[0].splitlines()[2:]
    assert len(table) > 5
    for row in table:
        severity, autofix, confidence, answer, route = (cell.strip() for cell in row.strip("|").split("|"))
        finding = {"severity": severity, "autofix_class": autofix, "confidence": int(confidence)}
        case = SubjectCase(name="finding", value=finding, principal=WHO, role=None, skill=None, enforcement="enforce",
                           session="s", now="", facts={})  # fmt: skip
        decision = policy.decide(case)
        assert (decision.outcome, decision.signals.get("route", "")) == (answer, route), row


def test_the_python_of_the_readme_runs():
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGES[0].read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    exec(compile(block, "README.md", "exec"), {})
