"""What the tests of providers need to know of a vendor's protocol, in the words of Deedbook."""

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import attrs
import jsonschema_rs

from .server import Action, document, stream

Call = tuple[str, Any]
"""A tool and its arguments; a text stands for arguments as the model wrote them, which may be no JSON."""
_IMAGES = {b"GIF8": "image/gif", b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}


@attrs.frozen(kw_only=True)
class ReceivedRequest:
    """A request in the words of ``completion_request_v3``, read back from what a vendor would get.

    *said* are ``(role, text)``, ``("image", media type, SHA-256)``, ``("call", name, arguments)`` and ``("result",
    name, value)``, in their order.
    """

    model: str
    system: str
    said: list[tuple[Any, ...]]
    tools: dict[str, Any]
    form: Any
    limit: int | None
    temperature: float | None


class Protocol(ABC):
    """One vendor's protocol, from its published description: the server's side of it.

    *schema* is the file with the JSON Schema of a request's body. *finishes* are the vendor's words for the reasons to
    finish. What the protocol cannot say is `None`.
    """

    schema: ClassVar[str]
    kind: ClassVar[str] = "text/event-stream"
    filler: ClassVar[bytes] = b": " + b"x" * 65_536 + b"\n\n"
    """A piece of a stream that says nothing."""
    key: ClassVar[str]
    """The header that carries the key."""
    finishes: ClassVar[Mapping[str, str | None]]
    ids: ClassVar[bool] = True
    """Whether every call has an id that the vendor gives."""

    @cached_property
    def validator(self) -> Any:
        """The validator of a request's body."""
        place = Path(__file__).parent / self.schema
        return jsonschema_rs.validator_for(json.loads(place.read_text(encoding="utf-8")))

    def faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the published protocol refuses in a request."""
        yield from (f"{each.instance_path}: {each.message}" for each in self.validator.iter_errors(body))
        if headers.get("content-type") != "application/json":
            yield f"the content type {headers.get('content-type')}"
        yield from self.semantic_faults(path, headers, body)

    @abstractmethod
    def address(self, url: str) -> str:
        """Return ``base_url`` of a server at *url*."""

    @abstractmethod
    def semantic_faults(self, path: str, headers: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what the protocol refuses though it has the right shape."""

    @abstractmethod
    def read_request(self, path: str, body: Any) -> ReceivedRequest:
        """Read a request back."""

    @abstractmethod
    def message(self, text: str = "", calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None) -> Any:
        """Return the document of an answer. *finish* is the vendor's word; *usage* replaces 9 tokens in, 12 out."""

    @abstractmethod
    def events(
        self, texts: Sequence[str], calls: Sequence[Call] = (), *, finish: str = "", usage: Any = None
    ) -> list[bytes]:
        """Return the events of a stream that gives *texts* and then *calls*; the last one ends the answer."""

    @abstractmethod
    def error(self, message: str, status: int) -> Any:
        """Return the document of a refusal."""

    @abstractmethod
    def error_event(self, message: str) -> bytes:
        """Return the event of a failure in the midst of a stream."""

    @abstractmethod
    def usage(self, read: Any, written: Any) -> Any:
        """Return the counts of tokens as the vendor writes them."""

    def answer(self, text: str = "", calls: Sequence[Call] = (), **more: Any) -> Action:
        """Return the action that sends an answer."""
        return document(self.message(text, calls, **more))

    def streamed(self, texts: Sequence[str], calls: Sequence[Call] = (), **more: Any) -> Action:
        """Return the action that sends an answer as a stream."""
        return stream(self.events(texts, calls, **more), kind=self.kind)

    def refusal(self, message: str, status: int, headers: Mapping[str, str] | None = None) -> Action:
        """Return the action that refuses a request."""
        return document(self.error(message, status), status=status, headers=headers)


def args_text(args: Any) -> str:
    """Return a call's arguments as the text that the model wrote."""
    return args if isinstance(args, str) else json.dumps(args)


def describe_image(data: str) -> tuple[str, str, str]:
    """Return what `ReceivedRequest.said` has of an image in base64, of either alphabet, by what the bytes are."""
    raw = base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True)
    kind = next(kind for begin, kind in _IMAGES.items() if raw.startswith(begin))
    return "image", kind, sha256(raw).hexdigest()


def describe_image_url(url: str) -> tuple[str, str, str]:
    """Return what `ReceivedRequest.said` has of an image in a ``data:`` URL."""
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    said = describe_image(data)
    assert said[1] == kind, f"the URL says {kind}, the image is {said[1]}"
    return said


def sse(data: Any, event: str = "") -> bytes:
    """Return a server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
