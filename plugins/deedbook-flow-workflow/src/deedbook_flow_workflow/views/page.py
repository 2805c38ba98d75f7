"""A cycle as one HTML page, which loads nothing and runs nothing."""

from typing import Final

from deedbook_inspect.replaying.templates import build_environment

from .cycle import CycleView

_PAGE: Final = "cycle.html"


def render_page(view: CycleView) -> str:
    """Return the page. Every text is escaped, and characters that a reader cannot see are spelled out."""
    environment = build_environment("deedbook_flow_workflow.views")
    return environment.get_template(_PAGE).render(view=view, made=view.as_json())
