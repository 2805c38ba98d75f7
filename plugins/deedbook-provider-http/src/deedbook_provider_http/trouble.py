"""What can go wrong with an endpoint, in words that say what to do about it."""

import time
from collections.abc import Container, Iterable, Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final

import attrs

MALFORMED: Final = "MALFORMED_AGENT_MESSAGE"
"""The code of an answer whose fault is the model's: a flow tells it to the model, which may answer again."""
MOST_WORDS: Final = 300
"""How many characters of an endpoint's own message are passed on."""
_MOST_READ: Final = 4096
"""How many characters of it are searched for keys."""
_PIECE: Final = 8
"""How many characters of a key tell too much."""
_LONGEST_WAIT: Final = 30 * 86400.0
"""The most seconds that an endpoint may want to be left alone; what it says beyond that counts as this."""
_TOO_LONG: Final = (
    "context_length_exceeded", "context length", "context window", "exceed_context_size_error", "prompt is too long",
    "exceeds the maximum number of tokens",
)  # fmt: skip
_AGAIN: Final = frozenset({408, 409, 429})


class Trouble(Exception):  # noqa: N818 - it is turned into `Failed` before it leaves the adapter
    """The endpoint failed. *again*: the same request may be sent once more, after *wait* seconds if that is known."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        again: bool = False,
        wait: float | None = None,
        code: str = "PROVIDER_ERROR",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable or again
        self.again = again
        self.wait = wait

    def at(self, place: str) -> "Trouble":
        """Return the same trouble with the *place* in its message, unless it is there, or the fault is the model's."""
        if place in str(self) or self.code == MALFORMED:
            return self
        message = f"{place}: {self}"
        return Trouble(message, retryable=self.retryable, again=self.again, wait=self.wait, code=self.code)

    def without(self, hidden: Iterable[str]) -> "Trouble":
        """Return the same trouble with no *hidden* value in its message."""
        return Trouble(
            hide(str(self), hidden), retryable=self.retryable, again=self.again, wait=self.wait, code=self.code
        )

    def describe(self) -> str:
        """Return the message, with the time that the endpoint wants to be left alone."""
        return f"{self}{self.describe_wait()}"

    def describe_wait(self) -> str:
        """Return the end of a message that tells how long the endpoint wants to be left alone; may be empty."""
        return f"; it wants to be asked again in {self.wait:.0f} s" if self.wait and self.wait >= 1 else ""


@attrs.frozen
class Endpoint:
    """Whom messages are about: the address, the model asked for, and the name of the secret with the key.

    *hidden* values are in no message; *hint* names the settings that a refused request may be due to.
    """

    base_url: str
    model: str
    key: str | None
    hidden: tuple[str, ...] = attrs.field(default=(), repr=False)
    hint: str = "structured and extra"

    def words(self, said: object) -> str:
        """Return a text from outside on one line, cut short, without any key."""
        line = " ".join(hide(str(said)[:_MOST_READ], self.hidden).split())
        return line if len(line) <= MOST_WORDS else f"{line[:MOST_WORDS]}…"

    def refused(self, status: int, headers: Mapping[str, str], body: object) -> Trouble:
        """Return what an answer with an error's *status* means."""
        code, said = _error(body)
        told = f"{status}{f': {self.words(said)}' if said else ''}"
        if status == 402 or code == "insufficient_quota" or "credit balance is too low" in said:
            return Trouble(f"{self.base_url}: the account has no quota left; see its plan and billing ({told})")
        again = status in _AGAIN or status >= 500
        if headers.get("x-should-retry") == "false":
            again = False
        why = self._why(status, code, said)
        return Trouble(f"{self.base_url} {why} ({told})", again=again, wait=wait_of(headers))

    def broke_off(self, body: object) -> Trouble:
        """Return what an error in the midst of a stream means."""
        said = _error(body)[1]
        return Trouble(f"{self.base_url} broke off its stream: {self.words(said)}", again=True)

    def _why(self, status: int, code: str, said: str) -> str:
        if any(word in f"{code} {said}".lower() for word in _TOO_LONG):
            return f"says that the conversation is longer than {self.model} takes; use a model that takes more"
        if 300 <= status < 400:
            return "answers with a redirect, which is not followed; write the final address into base_url"
        if status == 401 and self.key is None:
            return "wants a key; declare one under secrets: and name it with key:"
        meanings = {
            400: f"refused the request; see the provider's README for {self.hint}",
            401: f"refused the key secret {self.key!r}; correct its environment variable, or name another with key:",
            403: f"does not permit this; see what the key secret {self.key!r} may do and whether {self.model} is open",
            404: f"does not know the model {self.model!r}, or not this protocol; correct model: or base_url:",
            413: "refused the request as too large",
            422: f"refused the request; see the provider's README for {self.hint}",
            429: "was asked too often; wait, or raise the account's limits",
        }
        return meanings.get(status, "failed" if status >= 500 else "refused the request")


def hide(text: str, hidden: Iterable[str]) -> str:
    """Return *text* with ``***`` for each *hidden* value and for each piece of one that tells too much."""
    for value in hidden:
        size = min(len(value), _PIECE)
        pieces = {value[at : at + size] for at in range(len(value) - size + 1)} - {""}
        text = _hide_pieces(text, pieces, size)
    return text


def _hide_pieces(text: str, pieces: Container[str], size: int) -> str:
    """Return *text* with ``***`` for every run of characters that *pieces* of this *size* cover."""
    made, shown, end = [], 0, 0
    for at in range(len(text) - size + 1):
        if text[at : at + size] in pieces:
            if at >= end:
                made += [text[shown:at], "***"]
            shown = end = at + size
    return "".join(made) + text[shown:]


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds the endpoint wants to be left alone; ``None`` if it does not say so clearly."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return _limit_wait(seconds) if isfinite(seconds) else None
    try:
        return _limit_wait(parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _limit_wait(seconds: float) -> float:
    return min(max(0.0, seconds), _LONGEST_WAIT)


def _error(body: object) -> tuple[str, str]:
    """Return code and message of an error's *body*, as far as it holds them in one of the usual forms."""
    told: Any = body
    if isinstance(told, Mapping):
        inner = told.get("error", told)
        if isinstance(inner, Mapping):
            message = inner.get("message") or inner.get("detail") or ""
            codes = (inner.get(name) for name in ("code", "type", "status"))
            return next((code for code in codes if code and isinstance(code, str)), ""), str(message)
        told = inner
    return "", told if isinstance(told, str) else ""
