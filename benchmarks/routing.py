"""What it costs to rank ten thousand abilities for a prompt, beside looking once at each of their texts."""

from collections.abc import Iterator
from time import thread_time
from typing import Any, Final

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import Figure, Plan
from deedbook.policy.callers import LOCAL, route_data
from deedbook_hook_standard.routes import CharterRoutes

_MANY: Final = 10_000
_ROUNDS: Final = 101
_VERBS: Final = ("read", "write", "search", "list", "publish", "convert", "merge", "delete", "describe", "count")
_PROMPTS: Final = (
    "please convert the monthly invoice of customer 417 and publish it as a report",
    "area/a00042: which rows are there?",
    "write a summary of the release and merge the branch, then count the tests",
)


def run(plan: Plan) -> Iterator[Line]:
    """Rank prompts of a dozen words, in turns with a plain search for their words in every text."""
    many = plan.size(_MANY, 200)
    abilities = {f"area/a{number:05}": _ability(number) for number in range(many)}
    begun = thread_time()
    routes = CharterRoutes(route_data({"abilities": abilities}, {}))
    indexing = thread_time() - begun
    texts = [f"{name} {entry['summary']} {' '.join(entry['intents'])}" for name, entry in abilities.items()]
    rounds = [_round(routes, texts, _PROMPTS[turn % len(_PROMPTS)]) for turn in range(plan.size(_ROUNDS, 2))]
    ranking = Figure.of([ranked * 1000 for ranked, _ in rounds])
    yield Measure(f"ranking {many:,} abilities: CPU", "at most", 3, ranking, unit="ms")
    ratio = Figure.of([ranked / plain for ranked, plain in rounds])
    yield Measure("the same: to one `in` for each word and text", "at most", 0.5, ratio)
    yield Value("indexing them, once for each start with a hook that ranks: CPU", indexing * 1000, unit="ms")


def _round(routes: CharterRoutes, texts: list[str], prompt: str) -> tuple[float, float]:
    begun = thread_time()
    routes.rank(prompt, LOCAL, 5)
    between = thread_time()
    words = prompt.split()
    sorted(((sum(word in text for word in words), text) for text in texts), reverse=True)[:5]
    return between - begun, thread_time() - between


def _ability(number: int) -> dict[str, Any]:
    verb, object_ = _VERBS[number % 10], f"thing{number // 10 % 100}"
    return {
        "kind": "tool",
        "summary": f"{verb.title()} the {object_} of area {number // 1000}, as number {number} does.",
        "intents": [f"{verb} {object_}", f"do {number}"],
        "scopes": [f"scope{number % 7}"],
    }
