"""Check the plan of a model, as a message of the role that made it; pure."""

from typing import Final

import attrs

from deedbook import Object

from .findings import errors
from .skill_catalogue import SkillCatalogue
from .validation import validate_plan

_SHOWN: Final = 5


@attrs.frozen(eq=False)
class PlanCheck:
    """Checks plans against the skills and abilities of a *catalogue*; for `Conversation.answer`."""

    catalogue: SkillCatalogue

    def __call__(self, plan: Object) -> str:
        """Return what is wrong with *plan*, which fits its schema; empty if it is sound."""
        entries = (self.catalogue.find(name) for name in self.catalogue.skills)
        registry = self.catalogue.registry(entry for entry in entries if entry is not None)
        found = [finding.message for finding in errors(validate_plan(plan, registry))]
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        return "; ".join([*found[:_SHOWN], *more])
