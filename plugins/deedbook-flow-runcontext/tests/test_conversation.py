"""A conversation with one role."""

from deedbook import Ok
from deedbook_flow_runcontext.conversation import Conversation, Limits

REPORT = '{"output": "done", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}'


def test_conversation_counts_and_asks_with_the_model_of_its_tier(lab):
    found = []

    def work(args, run):
        talk = Conversation(run, "worker", {"request": args["prompt"]}, Limits(), tier="cheap")
        found.append(talk.count_tokens("worker_report_v1"))
        found.append(talk.answer("worker_report_v1"))
        return {"reply": "done", "state": "COMPLETED"}

    lab.role("worker", "You work.")
    lab.skill("greet", triggers="hello")
    lab.model(lambda request, ctx: "this one is not asked")
    lab.model(lambda request, ctx: REPORT, tier="cheap")
    lab.flow("work", work)
    with lab.session("run") as session:
        assert isinstance(session.run("hello"), Ok)
    count, report = found
    assert report["output"] == "done"
    assert (count.by, count.tokens > 20) == ("estimate", True)
    assert [each.payload["ability"] for each in lab.all("llm.request")] == ["model/cheap"]
