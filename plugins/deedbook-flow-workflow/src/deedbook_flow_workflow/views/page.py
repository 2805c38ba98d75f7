"""A cycle as one HTML page, which loads nothing and runs nothing."""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from deedbook.format.terminal import plain

from .cycle import CycleView

_PAGE: Final = "cycle.html"


def render_page(view: CycleView) -> str:
    """Return the page. Every text is escaped, and characters that a reader cannot see are spelled out."""
    environment = Environment(
        loader=PackageLoader("deedbook_flow_workflow.views", "pages"),
        autoescape=True,
        finalize=_spell_out,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    return environment.get_template(_PAGE).render(view=view, made=view.as_json())


def _spell_out(value: Any) -> Any:
    return plain(str(value))
