"""The parts of a response (``completion_response_v2``, ``_v3``); whatever is unclear is a `Trouble`, never a guess."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from deedbook import IntakeError, Object, parse

from .images import estimated_bytes
from .names import Names
from .trouble import MALFORMED, Trouble

_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_BYTES_PER_TOKEN: Final = 4


def response(
    request: Object, *, text: str, calls: Sequence[Object], reason: str, usage: Object, model: object
) -> dict[str, Any]:
    """Return the response, once its parts agree with each other."""
    if calls:
        reason = "tool_use"
    if reason == "tool_use" and not calls:
        unclear("the answer ends for tool calls and holds none")
    if len({call["id"] for call in calls}) < len(calls):
        unclear("two tool calls have the same id")
    return {
        "text": _strip_fence(text) if request.get("response_schema") else text,
        "tool_calls": list(calls),
        "finish_reason": reason,
        "usage": dict(usage),
        "model": model if isinstance(model, str) and model else request["model"],
        "schema_version": request["schema_version"],
    }


def calls_of(reason: str, uses: Sequence[Any], make: Callable[[Any, int], Object]) -> list[Object]:
    """Return what *make* makes of each use of a tool and its number, if calls count after this *reason* to finish.

    An answer that was cut off or refused has no calls: the last one may be half of what the model meant.
    """
    return [] if reason in ("max_tokens", "safety") else [make(use, number) for number, use in enumerate(uses, 1)]


def tool_call(request: Object, names: Names, name: object, args: object, *, given: object, number: int) -> Object:
    """Return one call; *number* counts the answer's calls from 1.

    The id is the one that was *given*, unless an earlier call of the conversation has it: some servers count the calls
    of each answer from zero. Layouts that a provider adds to an id stand behind a colon.
    """
    if not isinstance(name, str) or not name:
        unclear("a tool call names no function")
    earlier = [call["id"] for said in request["messages"] for call in said.get("tool_calls", ())]
    taken = {part for call_id in earlier for part in (call_id, call_id.partition(":")[0])}
    call_id = given if isinstance(given, str) and given not in taken else ""
    call_id = call_id or f"call_{len(earlier) + number}"
    while call_id in taken:
        call_id += "_"
    return {"id": call_id, "name": names.meant(name), "args": _arguments(args, name)}


def _arguments(given: object, name: str) -> Object:
    """Return a call's arguments; nothing at all stands for none, as some servers write it."""
    if given is None or given == "":
        return {}
    try:
        found = parse(given) if isinstance(given, str) else given
    except IntakeError as problem:
        why = f"refused: {problem}"
    else:
        if isinstance(found, dict):
            return found
        why = "no JSON object"
    raise Trouble(f"the model's call of {name[:80]} has arguments that are {why}", retryable=True, code=MALFORMED)


def reason_of(found: object, member: str, reasons: Mapping[str, str]) -> str:
    """Return the reason to finish that the *member* of an answer stands for; an unknown one is refused."""
    return reasons[one_of(found, member, reasons)]


def usage_of(
    request: Object,
    text: str,
    *,
    read: int | None,
    written: int | None,
    prices: Mapping[str, Any] | None,
    cached: int = 0,
    kept: int = 0,
) -> Object:
    """Return what was used, and what it cost if there are *prices* and each that it takes is known.

    *read* counts all tokens of the request; of these, *cached* came from the vendor's cache and *kept* went into it.
    *written* counts those of the answer. A count that is ``None`` is estimated from *request* and *text*, so that
    budgets bind where an endpoint does not count.
    """
    if read is None:
        read = _estimate(*(estimated_bytes(message["content"], _BYTES_PER_TOKEN) for message in request["messages"]))
    if written is None:
        written = _estimate(len(text.encode()))
    cached = min(cached, read)
    usage: dict[str, Any] = {"input_tokens": read, "output_tokens": written}
    if prices is None:
        return usage
    fresh = prices["input_per_million"]
    parts = (
        (read - cached - kept, fresh),
        (written, prices["output_per_million"]),
        (cached, prices.get("cached_input_per_million", fresh)),
        (kept, prices.get("cache_write_per_million", fresh)),
    )
    taken = [(tokens, price) for tokens, price in parts if tokens]
    if any(price is None for _, price in taken):
        return usage
    return {**usage, "cost_usd": round(sum(tokens * price for tokens, price in taken) / 1_000_000, 9)}


def counts_of(answer: Object, member: str) -> dict[str, Any]:
    """Return the counts of tokens that an *answer* has as its *member*; none if the endpoint does not count."""
    found = answer.get(member)
    return {} if found is None else obj(found, "the usage is no JSON object")


def count(told: Mapping[str, Any], name: str) -> int | None:
    """Return a number of tokens; ``None`` if the endpoint does not tell it. Anything but a count is refused."""
    value = told.get(name)
    if value is not None and (type(value) is not int or value < 0):
        unclear(f"{name} in the usage is {spell(value)}, which is no number of tokens: 0 or a larger whole number")
    return value


def _estimate(*sizes: int) -> int:
    """Return about how many tokens texts of these *sizes* in bytes are."""
    return -(-sum(sizes) // _BYTES_PER_TOKEN)


def obj(value: object, why: str) -> dict[str, Any]:
    """Return *value* if it is a JSON object; otherwise raise `Trouble`."""
    if not isinstance(value, dict):
        unclear(why)
    return value


def objects(value: object, why: str) -> list[dict[str, Any]]:
    """Return *value* if it is a list of JSON objects; otherwise raise `Trouble`."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        unclear(why)
    return value


def text_of(value: object, why: str) -> str:
    """Return *value* if it is a text, ``""`` for nothing; otherwise raise `Trouble`."""
    if value is not None and not isinstance(value, str):
        unclear(why)
    return value or ""


def one_of(found: object, member: str, known: Iterable[str]) -> str:
    """Return the *member* of an answer if it is one of the *known* texts; otherwise raise `Trouble`."""
    expected = list(known)
    if not isinstance(found, str) or found not in expected:
        unclear(f"{describe(found, member)}; expected {' or '.join(expected)}")
    return found


def describe(found: object, member: str) -> str:
    """Say what an answer has as its *member*."""
    return f"the answer has no {member}" if found is None else f"the answer's {member} is {spell(found)}"


def spell(value: object) -> str:
    """Return the beginning of a part of an answer, as it stands in JSON."""
    return json.dumps(value, ensure_ascii=False, default=str)[:40]


def unclear(why: str) -> NoReturn:
    """Raise that the answer is not what the protocol says."""
    hint = "see whether the server at base_url speaks this protocol"
    raise Trouble(f"the endpoint's answer is not what the protocol says: {why} ({hint})", retryable=True)


def _strip_fence(text: str) -> str:
    """Return the inside of a code fence that is all of *text*."""
    found = _FENCED.fullmatch(text)
    return found[1] if found and "```" not in found[1] else text
