"""The provider ``swe-answers``: plays answers from the files of a folder, each chosen by what the request says.

It keeps no state: the same request gets the same answer in every process, so a run that was suspended or killed goes on
with the answers that it would have got.
"""

import json
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import attrs

from deedbook import Ctx, Failed, HandlerSpec, Host, Object
from deedbook.format.errors import DeedbookError
from deedbook.workspace.documents import parse_yaml

MAX_BYTES: Final = 64 * 1024
_ENDINGS: Final = (".yaml", ".yml")
_KEYS: Final = frozenset({"made_by", "role", "when", "answer", "tool_calls"})


@attrs.frozen
class PlayedAnswer:
    """One file: whom it answers, which texts a request has to contain, and the *text* or the *tool_calls*."""

    path: str
    role: str
    when: tuple[str, ...]
    text: str
    tool_calls: tuple[Object, ...]

    def fits(self, role: object, said: str) -> bool:
        """Return whether this answers a request of *role* that says *said*."""
        return role == self.role and all(each in said for each in self.when)


class Answers:
    """Plays the YAML files under ``folder``: ``{made_by, role, when?, answer | tool_calls}``.

    A file answers each request of its role that contains every text of ``when``. Of several files, the one with the
    most texts is used. `Failed` with ``PROVIDER_ERROR`` if no file fits, if two fit equally, or if a file is invalid.
    """

    spec = HandlerSpec(
        settings={
            "type": "object",
            "required": ["folder"],
            "properties": {"folder": {"type": "string", "minLength": 1}},
            "additionalProperties": False,
        },
        effects="read",
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self.folder: str = settings["folder"]
        self._host = host
        self._lock = Lock()
        self._known: list[PlayedAnswer] | None = None

    def __call__(self, request: Object, _ctx: Ctx) -> dict[str, Any]:
        """Return the answer whose file fits *request* best."""
        with self._lock:
            if self._known is None:
                self._known = self._read()
            known = self._known
        found = self._choose(known, request)
        return {
            "text": found.text,
            "tool_calls": [dict(call) for call in found.tool_calls],
            "finish_reason": "tool_use" if found.tool_calls else "stop",
            "usage": {"input_tokens": 0, "output_tokens": 0},  # no model read or wrote anything
            "model": request["model"],
            "schema_version": "v2",
        }

    def _choose(self, known: list[PlayedAnswer], request: Object) -> PlayedAnswer:
        role = request.get("role")
        said = _join_messages(request)
        fitting = sorted((each for each in known if each.fits(role, said)), key=lambda each: -len(each.when))
        if not fitting:
            names = ", ".join(each.path for each in known if each.role == role) or "none"
            raise Failed(
                "PROVIDER_ERROR", f"{self.folder}: no file answers this request of {role!r}; its files: {names}"
            )
        if len(fitting) > 1 and len(fitting[0].when) == len(fitting[1].when):
            names = f"{fitting[0].path} and {fitting[1].path}"
            raise Failed("PROVIDER_ERROR", f"{names} answer the same request of {role!r}; add a text to when: of one")
        return fitting[0]

    def _read(self) -> list[PlayedAnswer]:
        try:
            paths = [each.path for each in self._host.scan(self.folder) if each.path.endswith(_ENDINGS)]
            return [_parse_answer(path, self._load(path)) for path in paths]
        except OSError as problem:
            raise Failed("PROVIDER_ERROR", f"{self.folder} cannot be read: {problem.strerror}") from None

    def _load(self, path: str) -> Any:
        with self._host.open(path) as file:
            raw = file.read(MAX_BYTES + 1)
        try:
            return parse_yaml(raw, path).value
        except DeedbookError as problem:
            raise Failed("PROVIDER_ERROR", f"{path} is no answer: {problem}") from None


def _parse_answer(path: str, value: Any) -> PlayedAnswer:
    wrong = _find_fault(value)
    if wrong:
        raise Failed("PROVIDER_ERROR", f"{path}: {wrong}")
    text = json.dumps(value["answer"], ensure_ascii=False, sort_keys=True) if "answer" in value else ""
    return PlayedAnswer(path, value["role"], tuple(value.get("when", ())), text, tuple(value.get("tool_calls", ())))


def _find_fault(value: Any) -> str:
    """Return what is wrong with the content of a file, or ``""``."""
    if not isinstance(value, Mapping):
        return "expected a mapping with made_by, role, and answer or tool_calls"
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        return f"{unknown[0]!r} is no key; keys: {', '.join(sorted(_KEYS))}"
    for key in ("made_by", "role"):
        if not isinstance(value.get(key), str) or not value[key]:
            return f"{key}: expected a text"
    texts = value.get("when", [])
    if not isinstance(texts, list) or not all(isinstance(each, str) and each for each in texts):
        return "when: expected a list of texts"
    if ("answer" in value) == ("tool_calls" in value):
        return "expected one of answer and tool_calls"
    if not isinstance(value.get("answer", {}), Mapping) or not isinstance(value.get("tool_calls", []), list):
        return "answer: expected a mapping; tool_calls: expected a list"
    return ""


def _join_messages(request: Object) -> str:
    return "\n".join(message["content"] for message in request["messages"])
