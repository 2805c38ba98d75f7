"""Images in requests: a mark in the prompt, a part of ``completion_request_v3``, and never bytes in the ledger."""

import json
from shutil import copytree

import pytest
from commandline import starter
from persons import approving
from ruamel.yaml import YAML

from deedbook import ALLOW, Branch, Err, Failed, Limits, Ok, ask
from deedbook.continuation.parent import read_parent
from deedbook_approvals.answering import answer
from deedbook_flow_runcontext.images import find_images
from deedbook_inspect.forking.fork import plan_fork, redo_work
from deedbook_testing.endpoints import Endpoint, OllamaChat
from deedbook_testing.images import IMAGES, image_of, image_part, with_images

PROTOCOL = OllamaChat()
RED = image_part("red.png", IMAGES["red.png"])
ASKED = with_images("What is it?", [RED])
SENT = ("image", RED["media_type"], RED["sha256"])
MARK = f'![image/png](<red.png> "sha256:{RED["sha256"]}")'


@pytest.fixture
def server():
    with Endpoint(PROTOCOL.faults) as server:
        yield server


def ollama(server, model="llava"):
    return {"provider": "ollama", "model": model, "timeout_ms": 60_000, "with": {"base_url": server.url}}


def said(server, number=-1):
    return PROTOCOL.read_request(server.paths[number], server.bodies[number]).said


# --- marks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["red.png", "a folder/red (1).png", 'say "so".png', "grüße/röt.png", "a](b).png"])
def test_mark_says_the_image_wherever_it_stands(path):
    image, again = ({**RED, "path": path, "sha256": digest * 64} for digest in "ab")
    one, other = (f'![image/png](<{path}> "sha256:{each["sha256"]}")' for each in (image, again))
    assert find_images(f"Look!\n{one}\n\n{other}\n{one}") == [image, again]


@pytest.mark.parametrize(
    "text",
    ["![a picture](red.png)", "![image/png](<red.png>)", f"see {MARK}", f"{MARK} there", f"> {MARK}",
     MARK.replace("png", "svg", 1), MARK.replace(RED["sha256"], RED["sha256"][:-1])],
)  # fmt: skip
def test_other_markdown_is_text(text):
    assert find_images(text) == []


# --- providers --------------------------------------------------------------------------------------------------------


def test_provider_that_declares_no_images_gets_none(lab):
    """The providers of version 2 go on as they are: the refusal comes before they are called, and is recorded."""
    called = []
    lab.model(lambda request, ctx: called.append(request) or "a picture")
    with lab.session() as session:
        refused = session.call("model/standard", {**ASKED, "model": "m"})
        text = session.call("model/standard", {**ASKED, "model": "m", "messages": [{"role": "user", "content": "Hi"}],
                                               "schema_version": "v2"})  # fmt: skip
    assert isinstance(refused, Err)
    assert (refused.error.code, refused.error.retryable) == ("PROVIDER_ERROR", False)
    assert "the model 'm': its provider takes no images" in str(refused.error)
    assert isinstance(text, Ok)
    assert [request["schema_version"] for request in called] == ["v2"]
    assert lab.payload("llm.error")["code"] == "PROVIDER_ERROR"
    assert lab.verify().sound


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_provider_with_images_may_answer_in_either_version(lab, version):
    usage = {"input_tokens": 1, "output_tokens": 1}
    answer = {"text": "red", "tool_calls": [], "finish_reason": "stop", "usage": usage, "model": "m"}
    lab.model(lambda request, ctx: {**answer, "schema_version": version}, images=True)
    with lab.session() as session:
        assert session.call("model/standard", {**ASKED, "model": "m"}).value["text"] == "red"


@pytest.mark.parametrize(
    "messages",
    [[{"role": role, "content": [{"type": "text", "text": "x"}]} for role in (name,)]
     for name in ("system", "assistant", "tool")]
    + [[{"role": "user", "content": [part]}] for part in (
        {"type": "image", "media_type": "image/png", "path": "a", "sha256": "x"}, {"type": "image", "text": "x"},
        {**RED, "data": "aGk="}, {"type": "audio"})]
    + [[{"role": "user", "content": []}]],
)  # fmt: skip
def test_parts_that_the_schema_does_not_know_are_refused(lab, messages):
    lab.model(lambda request, ctx: "red", images=True)
    with lab.session() as session:
        refused = session.call("model/standard", {"messages": messages, "model": "m", "schema_version": "v3"})
    assert refused.error.code == "SCHEMA_VIOLATION"


def test_image_passes_a_tier_that_asks_others(lab, server):
    image_of(lab.path, "red.png")
    tiers = {"eyes": ollama(server), "standard": {"provider": "fallback", "with": {"models": ["eyes"]}}}
    lab.settings(profile="lab", profiles={"lab": {"models": tiers}})
    server.plays(PROTOCOL.answer("red"))
    with lab.session() as session:
        assert session.call("model/standard", {**ASKED, "model": ""}).value["text"] == "red"
    assert said(server) == [("user", "What is it?"), SENT]


@pytest.mark.parametrize(("reads", "may"), [(["*.png"], True), (["src/"], False)])
def test_branch_whose_files_are_limited_shows_no_other_image(lab, server, reads, may):
    image_of(lab.path, "red.png")
    lab.settings(profiles={"lab": {"models": {"standard": ollama(server)}}})
    lab.role("worker")
    found = []

    def look(run):
        try:
            return run.agent("worker").complete({"messages": ASKED["messages"]})["text"]
        except Failed as failure:
            return f"{failure.code}: {failure}"

    lab.flow("main", lambda args, run: found.extend(run.parallel([Branch("b", look, limits=Limits(reads=reads))])))
    server.always = lambda _: PROTOCOL.answer("red")
    with lab.session() as session:
        session.run("hello")
    (answer,) = found
    if may:
        assert (answer, said(server)[-1]) == ("red", SENT)
    else:
        assert answer.startswith("PROVIDER_ERROR: the image red.png cannot be read")
        assert "which may read src/" in answer
        assert server.bodies == []


# --- runs that go on, and runs that are done again --------------------------------------------------------------------


@pytest.fixture
def looking(lab, server):
    """Return a lab whose run looks twice at the image that its prompt marks, and pays between."""
    image_of(lab.path, "red.png")
    lab.settings(profiles={"lab": {"models": {"standard": ollama(server)}}})
    lab.tool("pay", lambda args, ctx: {"paid": args["sum"]}, effects="write")
    lab.role("worker")
    lab.skill("clerk", allows="pay", triggers="hello")

    def look(run, prompt):
        messages = [{"role": "user", "content": [{"type": "text", "text": "Look!"}, *find_images(prompt)]}]
        return run.agent("worker").complete({"messages": messages})["text"]

    def work(args, run):
        before = look(run, args["prompt"])
        run.call("pay", {"sum": 2})
        return {"reply": f"{before}, {look(run, args['prompt'])}", "state": "COMPLETED"}

    lab.flow("work", work)
    server.plays(PROTOCOL.answer("red"), PROTOCOL.answer("still red"))
    return lab


@pytest.fixture
def paused(looking):
    """Return the session of such a run that waits for a person before it pays."""
    looking.policy("people", lambda call: ask("a sum") if call.ability == "pay" else ALLOW)
    approving(looking)
    with looking.session("run") as session:
        assert session.run(f"hello\n\n{MARK}").error.code == "NEEDS_HUMAN"
    return session.id


@pytest.fixture
def parent(looking):
    """Return the session of such a run that has ended."""
    with looking.session("run") as session:
        assert session.run(f"hello\n\n{MARK}").value.text == "red, still red"
    return session.id


def go_on(lab, session):
    """Approve the payment, and go on with the run."""
    identity = lab.all("approval.requested", session)[-1].payload["approval"]
    answer(lab.path, identity, approve=True, catalogue=lab.catalogue())
    with lab.kernel() as kernel, kernel.resume(session) as again:
        came = again.go_on()
        again.end(ok=isinstance(came, Ok), reason="done")
    return came


def images_in(lab, session):
    """Return the images of each recorded request."""
    requests = [event.payload["request"] for event in lab.events(session) if event.type == "llm.request"]
    return [request["messages"][-1]["content"][1:] for request in requests]


def test_resumed_run_shows_the_same_image(lab, paused, server):
    assert go_on(lab, paused).value.text == "red, still red"
    assert [said(server, number)[-1] for number in range(len(server.bodies))] == [SENT, SENT]
    assert images_in(lab, paused) == [[RED], [RED]]


@pytest.mark.parametrize(("change", "why"), [
    (lambda path: path.write_bytes(IMAGES["red.gif"]), "the image red.png has changed since it was given"),
    (lambda path: path.unlink(), "the image red.png cannot be read"),
])  # fmt: skip
def test_resumed_run_whose_image_has_changed_fails_and_sends_no_other(lab, paused, server, change, why):
    change(lab.path / "red.png")
    refused = go_on(lab, paused)
    assert (refused.error.code, why in str(refused.error)) == ("PROVIDER_ERROR", True)
    assert len(server.bodies) == 1
    assert images_in(lab, paused) == [[RED], [RED]]
    assert lab.verify(paused).sound


def fork(lab, parent, at, *, goes_on=False):
    """Fork a session at an event, and do the work again; return the new session's id and what came of it."""
    kernel = lab.kernel()
    planned = plan_fork(kernel, read_parent(lab.ledger(parent)), at, goes_on=goes_on, leaves=False, prompts=())
    with kernel.session("run", origin=planned.origin) as session:
        return session.id, redo_work(session, planned)


def test_fork_of_a_run_with_an_image_needs_neither_file_nor_server(lab, parent, server):
    """What is recorded is served; the request that is compared names the image by its digest."""
    (lab.path / "red.png").unlink()
    session, came = fork(lab, parent, len(lab.events(parent)) - 1)
    assert came.value.text == "red, still red"
    assert images_in(lab, session) == [[RED], [RED]]
    assert len(server.bodies) == 2


@pytest.mark.parametrize("changed", [False, True])
def test_fork_that_goes_on_shows_the_image_or_fails(lab, parent, server, changed):
    if changed:
        (lab.path / "red.png").write_bytes(IMAGES["red.gif"])
    server.plays(PROTOCOL.answer("red again"))
    paid = next(event.seq for event in lab.events(parent) if event.type == "tool.result")
    session, came = fork(lab, parent, paid, goes_on=True)
    assert images_in(lab, session) == [[RED], [RED]]
    if changed:
        assert "the image red.png has changed since it was given" in str(came.error)
        assert len(server.bodies) == 2
    else:
        assert (came.value.text, said(server)[-1]) == ("red, red again", SENT)


def test_recorded_answers_serve_requests_with_images(lab, server):
    """The request of the second session equals the first one, image and all; nobody is asked, and no file is read."""
    image_of(lab.path, "red.png")
    lab.settings(profile="lab", profiles={"lab": {"models": {"standard": ollama(server)}}})
    server.plays(PROTOCOL.answer("red"))
    with lab.session() as session:
        first = session.call("model/standard", {**ASKED, "model": "llava"}).value
    copytree(lab.ledger(session.id).parent, lab.path / "recording")
    (lab.path / "red.png").unlink()
    recorded = {"provider": "recorded", "model": "llava", "with": {"ledger": "recording"}}
    lab.settings(profiles={"lab": {"models": {"again": recorded}}})
    with lab.session() as session:
        assert session.call("model/again", {**ASKED, "model": "llava"}).value == first
        other = {**RED, "sha256": "0" * 64}
        missed = session.call("model/again", {**with_images("What is it?", [other]), "model": "llava"})
    assert missed.error.code == "NOT_RECORDED"
    assert len(server.bodies) == 1


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, server):
    """Return the starter with a profile whose model sees."""
    made = starter(tmp_path / "starter")
    path = made.path / ".system/deedbook.yaml"
    settings = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    settings["profiles"]["eyes"] = {"flow": "review", "models": {"standard": ollama(server)}}
    path.write_text(json.dumps(settings))
    image_of(made.path, "red.png")
    return made


def test_image_of_a_run_is_seen_by_every_role_and_recorded_by_digest(place, server):
    """The lead, and then the planner, whose answer ends the run; the ledger has path and digest."""
    directive = {"intent": "see", "constraints": [], "needs_advisor": False, "schema_version": "v1"}
    server.plays(PROTOCOL.answer(json.dumps(directive)), PROTOCOL.refusal("enough", 400))
    place.run("run", "--profile", "eyes", "--image", "red.png", "say hello to Ada", status=1)
    assert [said(server, number)[-1] for number in range(2)] == [SENT, SENT]
    (ledger,) = (place.path / ".deedbook/sessions").glob("*/.events.jsonl")
    events = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    requests = [event["payload"]["request"] for event in events if event["event_type"] == "llm.request"]
    assert [request["schema_version"] for request in requests] == ["v3", "v3"]
    assert requests[0]["messages"][-1]["content"][1:] == [RED]
    written = b"".join(path.read_bytes() for path in (place.path / ".deedbook").rglob("*") if path.is_file())
    assert server.bodies[0]["messages"][-1]["images"][0].encode() not in written
    assert "sound" in place.run("verify", "last", status=0).out


def test_image_is_refused_where_the_model_is_rules(place):
    ran = place.run("run", "--image", "red.png", "say hello to Ada", status=1)
    wanted = "its provider takes no images; leave them out, or use a profile whose provider takes them"
    assert f"model/standard: $.messages: {wanted}" in ran.err
    assert ".system/deedbook.yaml: profiles.local.models.standard" in ran.err


@pytest.mark.parametrize(
    ("name", "why"),
    [("none.png", "No such file"), ("../red.png", "put it into the workspace"),
     (".system/deedbook.yaml", "models take image/gif, image/jpeg"), (".", "models take")],
)  # fmt: skip
def test_image_that_cannot_be_given_is_an_error_of_usage(place, name, why):
    ran = place.run("run", "--profile", "eyes", "--image", name, "say hello to Ada", status=2)
    assert f"--image {name}: " in ran.err
    assert why in ran.err
    assert "Traceback" not in ran.err
