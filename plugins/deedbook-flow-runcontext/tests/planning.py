"""Plans for tests: strategies for sound ones, and checks that every plan fits the schema."""

from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder

SCHEMAS = Schemas.load(data_folder("schemas"))


def plan(*steps, **more):
    """Return a plan of *steps*, which fits ``plan_v2``; a step is its id, or a mapping."""
    whole = [{"id": step, "description": f"do {step}"} if isinstance(step, str) else {"description": "do", **step}
             for step in steps]  # fmt: skip
    made = {"steps": whole, "risks": [], "needs_advisor": False, "schema_version": "v2", **more}
    assert not steps or SCHEMAS.validator("plan_v2").violations(made) == ()
    return made


@st.composite
def sound_plans(draw, least=1, most=12):
    """Draw a sound plan: dependencies lead to steps that are drawn before, in an order that the plan does not keep.

    Optional steps give to optional ones only, or with a default; risky steps come after a gate if there is any.
    """
    count = draw(st.integers(least, most))
    names = [f"s{number}" for number in draw(st.permutations(range(count)))]
    gated = draw(st.booleans())
    steps = []
    for at, name in enumerate(names):
        step = {"id": name, "description": f"do {name}", "optional": at > 0 and draw(st.booleans())}
        earlier = names[: at and draw(st.integers(1, at))]
        step["depends_on"] = sorted(draw(st.sets(st.sampled_from(earlier), max_size=3))) if earlier else []
        sources = draw(st.sets(st.sampled_from(earlier), max_size=2)) if earlier else set()
        step["inputs"] = {
            f"from-{source}": {"step": source, "pointer": "/value", "default": None} for source in sorted(sources)
        }
        if gated and at == 0:
            step["tags"] = [draw(st.sampled_from(["approval-gate"]))]
        elif draw(st.booleans()):
            step["tags"] = ["destructive"]
            step["depends_on"] += [names[0]] if gated and names[0] not in step["depends_on"] else []
        steps.append(step)
    return plan(*draw(st.permutations(steps)))
