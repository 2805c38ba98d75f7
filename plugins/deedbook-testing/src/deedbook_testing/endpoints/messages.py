"""Anthropic's Messages API, from its published description."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .protocol import Call, Protocol, ReceivedRequest, args_text, describe_image_url, sse


class Messages(Protocol):
    """``POST /v1/messages``."""

    schema = "messages.json"
    key = "x-api-key"
    finishes: ClassVar = {"stop": "end_turn", "max_tokens": "max_tokens", "safety": "refusal"}

    def address(self, url: str) -> str:
        """Return the address without ``/v1``."""
        return url

    def semantic_faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the API refuses: wrong addresses, open calls, turns that do not alternate, loose schemas."""
        if path != "/v1/messages" or headers.get("anthropic-version") != "2023-06-01":
            yield f"{path} with the version {headers.get('anthropic-version')}"
        open_calls: list[str] = []
        before = ""
        for turn in body.get("messages", ()):
            if turn["role"] == before:
                yield f"two turns of the {before}"
            before = turn["role"]
            kinds = [block["type"] for block in turn["content"]]
            if kinds != sorted(kinds, key=lambda kind: kind != "tool_result"):
                yield "a tool_result after something else"
            answered = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
            if sorted(answered) != sorted(open_calls):
                yield f"the calls {open_calls} are answered by {answered}"
            open_calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        form = body.get("output_config", {}).get("format")
        if form:
            yield from _loose(form["schema"], "schema")

    def read_request(self, path: str, body: Any) -> ReceivedRequest:
        """Read a request back."""
        names: dict[str, str] = {}
        said: list[tuple[Any, ...]] = []
        for turn in body["messages"]:
            for block in turn["content"]:
                if block["type"] in ("thinking", "redacted_thinking"):
                    continue
                if block["type"] == "text":
                    said.append((turn["role"], block["text"]))
                elif block["type"] == "image":
                    source = block["source"]
                    said.append(describe_image_url(f"data:{source['media_type']};base64,{source['data']}"))
                elif block["type"] == "tool_use":
                    names[block["id"]] = block["name"]
                    said.append(("call", block["name"], block["input"]))
                else:
                    said.append(("result", names[block["tool_use_id"]], json.loads(block["content"])))
        return ReceivedRequest(
            model=body["model"],
            system=body.get("system", ""),
            said=said,
            tools={tool["name"]: tool["input_schema"] for tool in body.get("tools", ())},
            form=body.get("output_config", {}).get("format", {}).get("schema"),
            limit=body["max_tokens"],
            temperature=body.get("temperature"),
        )

    def message(self, text: str = "", calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None) -> Any:
        """Return a message."""
        texts = [{"type": "text", "text": text, "citations": None}] if text else []
        return {
            **self._head(finish or ("tool_use" if calls else "end_turn")),
            "content": [*texts, *(_use(number, call) for number, call in enumerate(calls))],
            "usage": self.usage(9, 12) if usage is None else usage,
        }

    def events(
        self, texts: Sequence[str], calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None
    ) -> list[bytes]:
        """Return the events of a stream, with a ping and a thought among them."""
        told = usage or self.usage(9, 12)
        head = {**self._head(None), "content": [], "usage": {**told, "output_tokens": 1}}
        made = [("message_start", {"message": head}), ("ping", {})]
        made += _block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            [("thinking_delta", "thinking", "Hm."), ("signature_delta", "signature", "c2ln")],
        )
        pieces = [("text_delta", "text", text) for text in texts]
        made += _block(1, {"type": "text", "text": ""}, pieces) if pieces else []
        for number, call in enumerate(calls):
            raw = args_text(call[1])
            parts = [("input_json_delta", "partial_json", part) for part in ("", raw[:5], raw[5:])]
            made += _block(2 + number, {**_use(number, call), "input": {}}, parts)
        end = finish or ("tool_use" if calls else "end_turn")
        counts = {"output_tokens": told["output_tokens"]}
        made.append(("message_delta", {"delta": {"stop_reason": end, "stop_sequence": None}, "usage": counts}))
        made.append(("message_stop", {}))
        return [sse({"type": name, **data}, name) for name, data in made]

    def error(self, message: str, status: int) -> Any:
        """Return the document of a refusal."""
        names = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
        return {
            "type": "error",
            "error": {"type": names.get(status, "api_error"), "message": message},
            "request_id": "r",
        }

    def error_event(self, message: str) -> bytes:
        """Return the event of a failure."""
        return sse({"type": "error", "error": {"type": "overloaded_error", "message": message}}, "error")

    def usage(self, read: Any, written: Any) -> Any:
        """Return counts of tokens."""
        return {
            "input_tokens": read,
            "output_tokens": written,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "service_tier": "standard",
        }

    def _head(self, finish: str | None) -> dict[str, Any]:
        head = {"id": "msg_013Zva2CMHLNnXjNJJKqJ2EF", "type": "message", "role": "assistant"}
        return {**head, "model": "model-2026", "stop_reason": finish, "stop_sequence": None}


def _use(number: int, call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": call[0], "input": call[1]}


def _block(index: int, block: Any, pieces: Sequence[tuple[str, str, str]]) -> list[tuple[str, dict[str, Any]]]:
    deltas = [
        ("content_block_delta", {"index": index, "delta": {"type": kind, name: piece}}) for kind, name, piece in pieces
    ]
    start: dict[str, Any] = {"index": index, "content_block": block}
    return [("content_block_start", start), *deltas, ("content_block_stop", {"index": index})]


def _loose(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    """Yield what structured outputs do not take of a schema."""
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"{at}: additionalProperties must be false"
        for name, part in schema["properties"].items():
            yield from _loose(part, f"{at}.{name}")
    wrong = schema.keys() & {"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "$schema"}
    if wrong:
        yield f"{at}: {sorted(wrong)} is not supported"
    if "items" in schema:
        yield from _loose(schema["items"], f"{at}[]")
