"""OpenAI's Responses API, from its published description."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .protocol import Call, Protocol, ReceivedRequest, args_text, describe_image_url, sse


class Responses(Protocol):
    """``POST /v1/responses``. Of the reasons to finish, *stop* is a status; the others tell why it is incomplete."""

    schema = "responses.json"
    key = "authorization"
    finishes: ClassVar = {"stop": "completed", "max_tokens": "max_output_tokens", "safety": "content_filter"}

    def address(self, url: str) -> str:
        """Return the address with ``/v1``."""
        return f"{url}/v1"

    def semantic_faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the API refuses: wrong addresses, outputs without calls, calls without outputs."""
        if path != "/v1/responses":
            yield f"the address {path}"
        called = [item["call_id"] for item in body.get("input", ()) if item.get("type") == "function_call"]
        answered = [item["call_id"] for item in body.get("input", ()) if item.get("type") == "function_call_output"]
        if sorted(called) != sorted(answered):
            yield f"the calls {called} are answered by {answered}"

    def read_request(self, path: str, body: Any) -> ReceivedRequest:
        """Read a request back."""
        names: dict[str, str] = {}
        said: list[tuple[Any, ...]] = []
        for item in body["input"]:
            match item.get("type", "message"):
                case "function_call":
                    names[item["call_id"]] = item["name"]
                    said.append(("call", item["name"], json.loads(item["arguments"])))
                case "function_call_output":
                    said.append(("result", names[item["call_id"]], json.loads(item["output"])))
                case _:
                    said += _message_parts(item)
        return ReceivedRequest(
            model=body["model"],
            system=body.get("instructions", ""),
            said=said,
            tools={tool["name"]: tool["parameters"] for tool in body.get("tools", ())},
            form=body.get("text", {}).get("format", {}).get("schema"),
            limit=body.get("max_output_tokens"),
            temperature=body.get("temperature"),
        )

    def message(self, text: str = "", calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None) -> Any:
        """Return a response."""
        done = finish in ("", "completed")
        status = "completed" if done else "incomplete"
        parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        said = {"type": "message", "id": "msg_1", "status": status, "role": "assistant", "content": parts}
        thought = {"type": "reasoning", "id": "rs_1", "summary": []}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1741569952,
            "model": "model-2026",
            "status": status,
            "error": None,
            "incomplete_details": None if done else {"reason": finish},
            "output": [thought, *([said] if text else []), *map(_call, range(len(calls)), calls)],
            "usage": self.usage(9, 12) if usage is None else usage,
        }

    def events(
        self, texts: Sequence[str], calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None
    ) -> list[bytes]:
        """Return the events of a stream; the last one holds the whole response."""
        whole = self.message("".join(texts), calls, finish=finish, usage=usage)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        made: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        made += [
            {
                "type": "response.output_text.delta",
                "item_id": "msg_1",
                "output_index": 1,
                "content_index": 0,
                "delta": text,
            }
            for text in texts
        ]
        for number, call in enumerate(calls):
            delta = args_text(call[1])
            made.append({"type": "response.function_call_arguments.delta", "output_index": 2 + number, "delta": delta})
        made += [{"type": "response.output_item.done", "output_index": 0, "item": item} for item in whole["output"]]
        made.append({"type": f"response.{whole['status']}", "response": whole})
        return [sse({**each, "sequence_number": number}, each["type"]) for number, each in enumerate(made)]

    def error(self, message: str, status: int) -> Any:
        """Return the document of a refusal."""
        return {"error": {"message": message, "type": "some_error", "param": None, "code": None}}

    def error_event(self, message: str) -> bytes:
        """Return the event of a failure."""
        return sse({"type": "error", "code": "server_error", "message": message, "param": None}, "error")

    def usage(self, read: Any, written: Any) -> Any:
        """Return counts of tokens."""
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {"input_tokens": read, "output_tokens": written, "total_tokens": 21, **details}


def _message_parts(item: Any) -> list[tuple[Any, ...]]:
    role, content = item["role"], item["content"]
    if isinstance(content, str):
        return [(role, content)]
    return [describe_image_url(part["image_url"]) if "image_url" in part else (role, part["text"]) for part in content]


def _call(number: int, call: Call) -> dict[str, Any]:
    head = {"type": "function_call", "id": f"fc{number}", "call_id": f"call_{number}", "status": "completed"}
    return {**head, "name": call[0], "arguments": args_text(call[1])}
