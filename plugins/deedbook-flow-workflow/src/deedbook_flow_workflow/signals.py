"""What the signals of workflows see: named values, each with the schema that a signal is compiled against.

| name | value |
|---|---|
| ``review_aggregate`` | what the findings of the phase come to (``review_aggregate_v1``) |
| ``artifact`` | what the phase gave, where it has an output schema; a cycle's conditions do not see it |
| ``context`` | ``{state, generation, phase, phase_runs, mode}`` of the run |
| ``request`` | the request, a text |
"""

from collections.abc import Mapping
from typing import Final

from deedbook import Object
from deedbook.format.schema import Schemas, data_folder
from deedbook_policy_standard.signals import SignalLanguage

from .definition import AGGREGATE

CONTEXT: Final[Object] = {
    "type": "object",
    "required": ["state", "generation", "phase", "phase_runs", "mode"],
    "properties": {
        "state": {"type": "string"},
        "generation": {"type": "integer", "minimum": 1},
        "phase": {"type": "string"},
        "phase_runs": {"type": "integer", "minimum": 1},
        "mode": {"type": "string"},
    },
    "additionalProperties": False,
}
"""The schema of ``context``: *generation* counts the runs of the phase in a row, *phase_runs* those of all phases."""


def build_language(output: Object | None) -> SignalLanguage:
    """Return the language of signals; *output* is the schema of ``artifact``. Raises `NoEngine`."""
    variables: Mapping[str, Object] = {
        "review_aggregate": Schemas.load(data_folder("schemas")).document(AGGREGATE),
        "context": CONTEXT,
        "request": {"type": "string"},
        **({} if output is None else {"artifact": output}),
    }
    return SignalLanguage(variables)
