"""The tool in a real workspace; `lab` comes from deedbook-testing."""


def test_slug_makes_an_address(lab):
    lab.settings(abilities={"slug": {"summary": "Slugs.", "handler": {"tool": "slug"}}})
    with lab.session() as session:
        assert session.call("slug", {"text": "Crème Brûlée, step by step"}).value == {
            "text": "creme-brulee-step-by-step"
        }
        assert session.call("slug", {"text": "…"}).error.code == "NO_LETTERS"
    assert lab.types() == ["session.start", "tool.call", "tool.result", "tool.call", "tool.error", "session.end"]
