"""Google's Gemini API, from its published description."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from .protocol import Call, Protocol, ReceivedRequest, describe_image_url, sse

SIGNATURE: Final = base64.b64encode(b"what the model thought>>>???").decode()
"""The signature of the first call of an answer; its bytes differ between the two alphabets of base64."""
_PATH: Final = re.compile(r"/v1beta/models/([^:/]+):(generateContent|streamGenerateContent\?alt=sse)")


class GenerateContent(Protocol):
    """``POST /v1beta/models/MODEL:generateContent``, and ``:streamGenerateContent``."""

    schema = "content.json"
    filler = b'data: {"responseId": "' + b"x" * 65_536 + b'"}\n\n'
    key = "x-goog-api-key"
    ids = False
    finishes: ClassVar = {"stop": "STOP", "max_tokens": "MAX_TOKENS", "safety": "SAFETY"}

    def address(self, url: str) -> str:
        """Return the address without the version."""
        return url

    def semantic_faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the API refuses: wrong addresses, calls that are not answered or not signed, forms with tools."""
        if not _PATH.fullmatch(path):
            yield f"the address {path}"
        open_calls: list[str] = []
        before = ""
        for turn in body.get("contents", ()):
            if turn["role"] == before:
                yield f"two turns of the {before}"
            before = turn["role"]
            functions = [part["functionCall"]["name"] for part in turn["parts"] if "functionCall" in part]
            answers = [part["functionResponse"]["name"] for part in turn["parts"] if "functionResponse" in part]
            if answers != open_calls:
                yield f"the calls {open_calls} are answered by {answers}"
            first = next((part for part in turn["parts"] if "functionCall" in part), None)
            if first is not None and not _is_signed(first.get("thoughtSignature")):
                yield "Function call is missing a thought_signature in functionCall parts."
            open_calls = functions
        if body.get("tools") and "responseMimeType" in body.get("generationConfig", {}):
            yield "Function calling with a response mime type: 'application/json' is unsupported"

    def read_request(self, path: str, body: Any) -> ReceivedRequest:
        """Read a request back."""
        found = _PATH.fullmatch(path)
        said: list[tuple[Any, ...]] = []
        for turn in body["contents"]:
            role = "assistant" if turn["role"] == "model" else "user"
            for part in turn["parts"]:
                if "text" in part:
                    said.append((role, part["text"]))
                elif "inlineData" in part:
                    inline = part["inlineData"]
                    media_type = inline.get("mimeType", inline.get("mime_type"))
                    said.append(describe_image_url(f"data:{media_type};base64,{inline['data']}"))
                elif "functionCall" in part:
                    said.append(("call", part["functionCall"]["name"], part["functionCall"]["args"]))
                else:
                    answered = part["functionResponse"]
                    said.append(("result", answered["name"], answered["response"]))
        config = body.get("generationConfig", {})
        declared = [each for tool in body.get("tools", ()) for each in tool["functionDeclarations"]]
        return ReceivedRequest(
            model=found[1] if found else "",
            system="".join(part["text"] for part in body.get("systemInstruction", {}).get("parts", ())),
            said=said,
            tools={
                each["name"]: each.get("parametersJsonSchema", each.get("parameters_json_schema")) for each in declared
            },
            form=config.get("responseJsonSchema"),
            limit=config.get("maxOutputTokens"),
            temperature=config.get("temperature"),
        )

    def message(self, text: str = "", calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None) -> Any:
        """Return an answer with one candidate."""
        parts = [*([{"text": text}] if text else []), *map(_part, range(len(calls)), calls)]
        return self._answer(parts, finish or "STOP", self.usage(9, 12) if usage is None else usage)

    def events(
        self, texts: Sequence[str], calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None
    ) -> list[bytes]:
        """Return the events of a stream, with a thought before them."""
        made = [self._answer([{"text": "Hm.", "thought": True}], None, self.usage(9, 1))]
        made += [self._answer([{"text": text}], None, self.usage(9, 5)) for text in texts]
        made += [self._answer([_part(*each)], None, self.usage(9, 5)) for each in enumerate(calls)]
        made.append(self._answer([{"text": ""}], finish or "STOP", usage or self.usage(9, 12)))
        return [sse(each) for each in made]

    def error(self, message: str, status: int) -> Any:
        """Return the document of a refusal; a wrong key is an invalid argument here."""
        names = {400: "INVALID_ARGUMENT", 401: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
        return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}

    def error_event(self, message: str) -> bytes:
        """Return the event of a failure."""
        return sse(self.error(message, 503))

    def usage(self, read: Any, written: Any) -> Any:
        """Return counts of tokens."""
        return {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": 21}

    def _answer(self, parts: Sequence[Any], finish: str | None, usage: Any) -> dict[str, Any]:
        candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
        ended = {**candidate, **({"finishReason": finish} if finish else {})}
        return {"candidates": [ended], "usageMetadata": usage, "modelVersion": "model-2026", "responseId": "r1"}


def _part(number: int, call: Call) -> dict[str, Any]:
    function = {"functionCall": {"id": f"fn:{number}", "name": call[0], "args": call[1]}}
    return function if number else {**function, "thoughtSignature": SIGNATURE}


def _is_signed(signature: Any) -> bool:
    """Return whether a signature is the model's own, in either alphabet, or the text that stands for a foreign one."""
    if not isinstance(signature, str):
        return False
    plain = signature.replace("-", "+").replace("_", "/")
    return base64.b64decode(plain) in (
        base64.b64decode(SIGNATURE),
        base64.b64decode("skip/thought/signature/validator"),
    )


def details(message: str, status: int, **detail: Any) -> Any:
    """Return the document of a refusal with details, such as ``retryDelay`` or ``reason``."""
    refusal = GenerateContent().error(message, status)
    kind = "type.googleapis.com/google.rpc." + ("RetryInfo" if "retryDelay" in detail else "ErrorInfo")
    refusal["error"]["details"] = [{"@type": kind, **detail}]
    return json.loads(json.dumps(refusal))
