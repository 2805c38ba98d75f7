"""Ollama's chat API, from its published description."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .protocol import Call, Protocol, ReceivedRequest, describe_image


class OllamaChat(Protocol):
    """``POST /api/chat``."""

    schema = "chat.json"
    kind = "application/x-ndjson"
    filler = b" " * 65_536 + b"\n"
    key = "authorization"
    finishes: ClassVar = {"stop": "stop", "max_tokens": "length", "safety": None}
    ids = False

    def address(self, url: str) -> str:
        """Return the address without ``/api``."""
        return url

    def semantic_faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the server refuses, or takes and answers wrongly: results without calls, a format with tools."""
        if path != "/api/chat":
            yield f"the address {path}"
        called: list[str] = []
        for message in body.get("messages", ()):
            called += [call["function"]["name"] for call in message.get("tool_calls", ())]
            if message["role"] == "tool" and message.get("tool_name") not in called:
                yield f"a result of {message.get('tool_name')}, which was not called"
        if body.get("tools") and "format" in body:
            yield "with a format the model cannot ask for tools"

    def read_request(self, path: str, body: Any) -> ReceivedRequest:
        """Read a request back."""
        said: list[tuple[Any, ...]] = []
        system = []
        for message in body["messages"]:
            if message["role"] == "system":
                system.append(message["content"])
            elif message["role"] == "tool":
                said.append(("result", message["tool_name"], json.loads(message["content"])))
            else:
                said += [(message["role"], message["content"])] if message["content"] else []
                said += map(describe_image, message.get("images", ()))
                functions = [call["function"] for call in message.get("tool_calls", ())]
                said += [("call", each["name"], each["arguments"]) for each in functions]
        options = body.get("options", {})
        return ReceivedRequest(
            model=body["model"],
            system="\n\n".join(system),
            said=said,
            tools={tool["function"]["name"]: tool["function"]["parameters"] for tool in body.get("tools", ())},
            form=body.get("format"),
            limit=options.get("num_predict"),
            temperature=options.get("temperature"),
        )

    def message(self, text: str = "", calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None) -> Any:
        """Return an answer."""
        said = {"role": "assistant", "content": text, **({"tool_calls": _calls(calls)} if calls else {})}
        return self._line(said, finish or "stop", self.usage(9, 12) if usage is None else usage)

    def events(
        self, texts: Sequence[str], calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None
    ) -> list[bytes]:
        """Return the lines of a stream, with a thought before them."""
        made = [self._line({"role": "assistant", "content": "", "thinking": "Hm."}, None, {})]
        made += [self._line({"role": "assistant", "content": text}, None, {}) for text in texts]
        made += [
            self._line({"role": "assistant", "content": "", "tool_calls": _calls([call])}, None, {}) for call in calls
        ]
        made.append(self._line({"role": "assistant", "content": ""}, finish or "stop", usage or self.usage(9, 12)))
        return [json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in made]

    def error(self, message: str, status: int) -> Any:
        """Return the document of a refusal."""
        return {"error": message}

    def error_event(self, message: str) -> bytes:
        """Return the line of a failure."""
        return json.dumps({"error": message}).encode() + b"\n"

    def usage(self, read: Any, written: Any) -> Any:
        """Return counts of tokens, which stand beside the message."""
        return {"prompt_eval_count": read, "eval_count": written}

    def _line(self, said: Any, finish: str | None, usage: Any) -> dict[str, Any]:
        head = {"model": "model-2026", "created_at": "2026-01-01T00:00:00.123456Z", "message": said}
        return {**head, "done": finish is not None, **({"done_reason": finish} if finish else {}), **usage}


def _calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [{"function": {"name": name, "arguments": args}} for name, args in calls]
