"""OpenAI's Chat Completions, from its published description."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .protocol import Call, Protocol, ReceivedRequest, args_text, describe_image_url, sse


class ChatCompletions(Protocol):
    """``POST /v1/chat/completions``."""

    schema = "completions.json"
    key = "authorization"
    finishes: ClassVar = {"stop": "stop", "max_tokens": "length", "safety": "content_filter"}

    def address(self, url: str) -> str:
        """Return the address with ``/v1``."""
        return f"{url}/v1"

    def semantic_faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the API refuses: wrong addresses, and calls that are not answered."""
        if path != "/v1/chat/completions":
            yield f"the address {path}"
        open_calls: list[str] = []
        for message in body.get("messages", ()):
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    yield f"tool_call_id {message['tool_call_id']} answers no call before it"
                else:
                    open_calls.remove(message["tool_call_id"])
            else:
                yield from (f"call {call} was not answered" for call in open_calls)
                open_calls = [call["id"] for call in message.get("tool_calls", ())]

    def read_request(self, path: str, body: Any) -> ReceivedRequest:
        """Read a request back."""
        said: list[tuple[Any, ...]] = []
        names: dict[str, str] = {}
        for message in body["messages"]:
            if message["role"] == "tool":
                said.append(("result", names[message["tool_call_id"]], json.loads(message["content"])))
            elif message["role"] != "system":
                said += _message_parts(message)
                for call in message.get("tool_calls", ()):
                    names[call["id"]] = call["function"]["name"]
                    said.append(("call", call["function"]["name"], json.loads(call["function"]["arguments"])))
        return ReceivedRequest(
            model=body["model"],
            system="\n\n".join(said["content"] for said in body["messages"] if said["role"] == "system"),
            said=said,
            tools={tool["function"]["name"]: tool["function"]["parameters"] for tool in body.get("tools", ())},
            form=body.get("response_format", {}).get("json_schema", {}).get("schema"),
            limit=body.get("max_completion_tokens", body.get("max_tokens")),
            temperature=body.get("temperature"),
        )

    def message(self, text: str = "", calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None) -> Any:
        """Return a completion with one choice."""
        made = {"tool_calls": [_call(*each) for each in enumerate(calls)]} if calls else {}
        said = {"role": "assistant", "content": text or None, "refusal": None, **made}
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": finish or _end(calls)}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1741569952, "model": "model-2026"}
        return {**head, "choices": [choice], "usage": self.usage(9, 12) if usage is None else usage}

    def events(
        self, texts: Sequence[str], calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None
    ) -> list[bytes]:
        """Return the events of a stream."""
        deltas: list[Any] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
        for number, call in enumerate(calls):
            whole = _call(number, call)
            raw = whole["function"]["arguments"]
            begin = {**whole, "index": number, "function": {"name": call[0], "arguments": ""}}
            pieces = [{"index": number, "function": {"arguments": part}} for part in (raw[:5], raw[5:])]
            deltas += [{"tool_calls": [each]} for each in (begin, *pieces)]
        made = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
        made.append(_chunk([{"index": 0, "delta": {}, "finish_reason": finish or _end(calls)}]))
        made.append({**_chunk([]), "usage": usage or self.usage(9, 12)})
        return [*map(sse, made), b"data: [DONE]\n\n"]

    def error(self, message: str, status: int) -> Any:
        """Return the document of a refusal."""
        return {"error": {"message": message, "type": "some_error", "param": None, "code": None}}

    def error_event(self, message: str) -> bytes:
        """Return the event of a failure."""
        return sse(self.error(message, 503))

    def usage(self, read: Any, written: Any) -> Any:
        """Return counts of tokens."""
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": 21}


def _message_parts(message: Any) -> list[tuple[Any, ...]]:
    role, content = message["role"], message["content"]
    if not isinstance(content, list):
        return [(role, content)] if content else []
    return [
        describe_image_url(part["image_url"]["url"]) if "image_url" in part else (role, part["text"])
        for part in content
    ]


def _end(calls: Sequence[Call]) -> str:
    return "tool_calls" if calls else "stop"


def _call(number: int, call: Call) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": call[0], "arguments": args_text(call[1])}}


def _chunk(choices: Sequence[Any]) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1741569952, "model": "model-2026"}
    return {**head, "choices": list(choices), "usage": None}
