"""The part of the contract of hosted providers that is about answers which no protocol allows.

Each of them is one structured error, which is recorded once and asked for again only where that is safe.
"""

import json
from collections.abc import Callable
from itertools import repeat
from typing import Any, ClassVar

import pytest

from deedbook.contract import Failed
from deedbook.format.errors import Err

from .acting import ProviderContract
from .endpoints import Endpoint, Protocol, ReceivedRequest
from .endpoints.protocol import Call
from .endpoints.server import cut_short, document, hang_up, stream
from .lab import Lab
from .model_requests import KEY, TOOLS, Ask, user


class BadAnswerContract(ProviderContract):
    """What a provider makes of bad answers; `HostedProviderContract` has the fixtures that ask and the server."""

    protocol: ClassVar[Protocol]

    def read_back(self, server: Endpoint, number: int = -1) -> ReceivedRequest:
        """Return a request as the vendor reads it."""
        return self.protocol.read_request(server.paths[number], server.bodies[number])

    @pytest.mark.parametrize("case", ["no JSON", "cut JSON", "a key twice", "NaN", "not UTF-8", "too deep", "nothing"])
    def test_refuses_what_intake_refuses(self, endpoint: Endpoint, failed: Callable[..., Failed], case: str) -> None:
        """An answer that is not acceptable JSON is no answer; asking again is safe."""
        whole = json.dumps(self.protocol.message("x", usage=self.protocol.usage(77, 12))).encode()
        raw = {
            "no JSON": b"<html>",
            "cut JSON": whole[:-10],
            "a key twice": b'{"model": "a", ' + whole[1:-1] + b', "model": "b"}',
            "NaN": whole.replace(b"77", b"NaN"),
            "not UTF-8": whole.replace(b"model-2026", b"\xff"),
            "too deep": b"[" * 100_000,
            "nothing": b"",
        }[case]
        endpoint.plays(document(raw))
        assert failed(code="INTAKE_REFUSED").retryable

    def test_passes_over_comments_in_a_stream(self, endpoint: Endpoint, respond: Ask) -> None:
        """Server-sent events may hold them at any place; servers send them to keep a connection open."""
        if self.protocol.kind != "text/event-stream":
            pytest.skip("the protocol's streams have no comments")
        events = self.protocol.events(["so ", "far"])
        endpoint.plays(stream([b": ping\n\n", *(b": ping\n" + event for event in events)], kind=self.protocol.kind))
        assert respond(stream=True)["text"] == "so far"

    @pytest.mark.parametrize("read", [-1, "9", 1.5, True, {}])
    def test_refuses_usage_that_is_no_count(self, endpoint: Endpoint, failed: Callable[..., Failed], read: Any) -> None:
        """Wrong counts, also of a stream, would unbind budgets."""
        usage = self.protocol.usage(read, 12)
        endpoint.plays(self.protocol.answer("x", usage=usage), self.protocol.streamed(["x"], usage=usage))
        for streams in (False, True):
            problem = failed(stream=streams)
            assert "which is no number of tokens" in str(problem)
            assert problem.retryable

    @pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
    def test_refuses_usage_of_a_stream_that_is_no_number(
        self, endpoint: Endpoint, failed: Callable[..., Failed], number: bytes
    ) -> None:
        """Python would read them as floats; intake does not."""
        whole = b"".join(self.protocol.events(["x"], usage=self.protocol.usage(77, 12)))
        assert b"77" in whole
        endpoint.plays(stream([whole.replace(b"77", number)], kind=self.protocol.kind))
        problem = failed(stream=True, code="INTAKE_REFUSED")
        assert "the stream holds an event that is refused" in str(problem)
        assert problem.retryable

    def test_refuses_an_answer_of_another_shape(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """A list, nothing of the protocol, an unknown reason: the message has the place and what was expected."""
        endpoint.plays(document([1]), document({}), self.protocol.answer("x", finish="tired"))
        for told in ("the answer is no JSON object", "the answer has no ", 'is "tired"; expected '):
            problem = failed()
            assert problem.retryable
            assert str(problem).startswith(self.protocol.address(endpoint.url))
            assert told in str(problem)
            assert "see whether the server at base_url speaks this protocol" in str(problem)

    def test_refuses_arguments_that_are_no_object(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """The model's mistake is not passed on as a call."""
        endpoint.plays(self.protocol.answer("", [("echo", [1])]))
        problem = failed(user(tools=TOOLS), code="MALFORMED_AGENT_MESSAGE")
        assert "arguments" in str(problem)
        assert problem.retryable

    @pytest.mark.parametrize("written", ['{"text": ', "a text", '{"a": 1, "a": 2}', '{"n": NaN}', "[1]", '"x"', "null"])
    def test_refuses_arguments_that_the_model_wrote_wrongly(
        self, endpoint: Endpoint, failed: Callable[..., Failed], written: str
    ) -> None:
        """Broken JSON, no JSON, and JSON that is no object; plain and as a stream."""
        calls = [("echo", written)]
        endpoint.plays(self.protocol.answer("", calls), self.protocol.streamed([], calls))
        why = "no JSON object" if written in ("[1]", '"x"', "null") else "refused"
        for streams in (False, True):
            problem = failed(user(tools=TOOLS), stream=streams, code="MALFORMED_AGENT_MESSAGE")
            assert f"the model's call of echo has arguments that are {why}" in str(problem)
            assert problem.retryable

    def test_refuses_ids_that_are_repeated(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """Otherwise it would be unclear which call a result answers."""
        if not self.protocol.ids:
            pytest.skip("the protocol gives calls no ids")
        calls: list[Call] = [("echo", {}), ("echo", {})]
        whole = json.dumps(self.protocol.message("", calls)).replace("_1", "_0")
        streamed = b"".join(self.protocol.events([], calls)).replace(b"_1", b"_0")
        endpoint.plays(document(whole.encode()), stream([streamed], kind=self.protocol.kind))
        for streams in (False, True):
            problem = failed(user(tools=TOOLS), stream=streams)
            assert "two tool calls have the same id" in str(problem)
            assert problem.retryable

    @pytest.mark.parametrize("streams", [False, True])
    def test_tells_calls_apart_whose_id_an_earlier_answer_had(
        self, endpoint: Endpoint, respond: Ask, *, streams: bool
    ) -> None:
        """Some servers count the calls of each answer from zero; each result still goes to its own call."""
        said = list(user("Go")["messages"])
        for number, name in enumerate(["git_commit", "echo"]):
            calls = [(name, {"n": number})]
            endpoint.plays(self.protocol.streamed([], calls) if streams else self.protocol.answer("", calls))
            made = respond({"messages": said, "tools": TOOLS}, stream=streams)["tool_calls"]
            said.append({"role": "assistant", "content": "", "tool_calls": made})
            said.append({"role": "tool", "tool_call_id": made[0]["id"], "content": f'{{"n":{number}}}'})
        endpoint.plays(self.protocol.answer("Done."))
        respond({"messages": said, "tools": TOOLS})
        ids = [call["id"] for message in said for call in message.get("tool_calls", ())]
        assert len(set(ids)) == 2
        assert self.read_back(endpoint).said == [
            ("user", "Go"),
            ("call", "git_commit", {"n": 0}),
            ("result", "git_commit", {"n": 0}),
            ("call", "echo", {"n": 1}),
            ("result", "echo", {"n": 1}),
        ]

    def test_refuses_a_stream_that_ends_in_the_middle_of_an_event(
        self, endpoint: Endpoint, failed: Callable[..., Failed]
    ) -> None:
        """Wherever it ends, also behind the last text; a proxy may end the body properly."""
        events = self.protocol.events(["so"], [("echo", {"n": 1})])
        for at, event in enumerate(events):
            if b"{" in event:
                half = [*events[:at], event[: event.rindex(b"}")]]
                endpoint.plays(stream(half, kind=self.protocol.kind))
                problem = failed(user(tools=TOOLS), stream=True, code="INTAKE_REFUSED")
                assert "the stream ended in the middle of an event" in str(problem)
                assert problem.retryable
        endpoint.plays(stream(half, kind=self.protocol.kind, cut=True))
        assert "cut the connection" in str(failed(user(tools=TOOLS), stream=True))

    def test_reads_an_answer_byte_by_byte(self, endpoint: Endpoint, respond: Ask) -> None:
        """A slow line is no fault."""
        whole = json.dumps(self.protocol.message("Grüß dich"), ensure_ascii=False).encode()
        pieces = [whole[at : at + 1] for at in range(len(whole))]
        endpoint.plays(stream(pieces, kind="application/json"))
        assert respond()["text"] == "Grüß dich"

    @pytest.mark.parametrize("streams", [False, True])
    def test_refuses_another_content_type(
        self, endpoint: Endpoint, failed: Callable[..., Failed], *, streams: bool
    ) -> None:
        """A page of a proxy is no answer."""
        endpoint.plays(document(b"<html>", kind="text/html; charset=utf-8"))
        problem = failed(stream=streams)
        assert "answers with text/html instead of" in str(problem)
        assert not problem.retryable

    def test_refuses_an_answer_that_is_compressed(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """A small body can unpack to a large one."""
        endpoint.plays(document(self.protocol.message("x"), headers={"content-encoding": "gzip"}))
        assert "'gzip' encoding, which was not asked for" in str(failed())

    def test_refuses_an_answer_that_is_too_large(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """At 16 MiB it stops, also with a stream that never ends and with a refusal."""
        endpoint.plays(
            self.protocol.answer("x" * (16 * 1024 * 1024)),
            stream(repeat(self.protocol.filler), kind=self.protocol.kind),
            document(b"x" * (16 * 1024 * 1024 + 1), status=500),
        )
        for streams in (False, True, False):
            assert "larger than 16777216 bytes" in str(failed(stream=streams))

    def test_says_that_the_connection_was_cut(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """The server closes before the end, or is not there."""
        endpoint.plays(cut_short, hang_up, hang_up)
        for streams in (False, False, True):
            problem = failed(stream=streams)
            assert "cannot be reached, or cut the connection" in str(problem)
            assert problem.retryable
        problem = failed(base_url=self.protocol.address("http://127.0.0.1:9"))
        assert "see whether it runs and base_url is right" in str(problem)

    def test_records_each_bad_answer_once(self, endpoint: Endpoint, workshop: Callable[..., Lab]) -> None:
        """One request and one error with its code in the ledger, which stays sound and never has the key."""
        protocol = self.protocol
        cases = [
            (document(b"{"), "INTAKE_REFUSED", True),
            (document(b"<html>", kind="text/html"), "PROVIDER_ERROR", False),
            (cut_short, "PROVIDER_ERROR", True),
            (protocol.answer("x", usage=protocol.usage(-1, 12)), "PROVIDER_ERROR", True),
            (protocol.answer("", [("echo", "{")]), "MALFORMED_AGENT_MESSAGE", True),
            (protocol.refusal(f"wrong key {KEY}", 401), "PROVIDER_ERROR", False),
        ]
        endpoint.plays(*(action for action, _, _ in cases), protocol.answer(f"Your key is {KEY}."))
        lab = workshop()
        with lab.session() as session:
            results = [self.ask(session, self.with_tools) for _ in cases]
            self.ask(session, self.plain)
        assert all(isinstance(each, Err) for each in results)
        recorded = [(each.payload["code"], each.payload["retryable"]) for each in lab.all("llm.error")]
        assert recorded == [case[1:] for case in cases]
        assert len(lab.all("llm.request")) == len(endpoint.bodies) == len(cases) + 1
        assert lab.verify().sound
        assert self.leaks(lab, (), results) == []

    @pytest.mark.parametrize("streams", [False, True])
    def test_masks_a_key_that_a_good_answer_repeats(self, endpoint: Endpoint, respond: Ask, *, streams: bool) -> None:
        """No flow, tool or person gets it."""
        said = f"Your key is {KEY}."
        endpoint.plays(self.protocol.streamed([said]) if streams else self.protocol.answer(said))
        assert respond(stream=streams)["text"] == "Your key is [secret:main]."

    def test_hides_a_key_that_a_bad_answer_repeats(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """Wherever it stands, also where a message quotes only the beginning of it."""
        protocol = self.protocol
        endpoint.plays(
            *(protocol.answer("x", finish="." * size + KEY) for size in (0, 30)),
            document(b"x", kind="." * 70 + KEY),
            document(b'{"%b": 1, "%b": 2}' % (KEY.encode(), KEY.encode())),
        )
        for code in ("PROVIDER_ERROR", "PROVIDER_ERROR", "PROVIDER_ERROR", "INTAKE_REFUSED"):
            assert KEY[:8] not in str(failed(code=code))
        endpoint.plays(
            stream([*protocol.events(["x"])[:1], protocol.error_event(f"bad key {KEY}")], kind=protocol.kind),
        )
        assert "bad key ***" in str(failed(stream=True))
