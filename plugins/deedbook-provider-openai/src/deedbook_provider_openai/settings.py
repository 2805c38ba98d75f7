"""What stands under ``with:`` of a model in a profile."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook import Object

OPENAI: Final = "https://api.openai.com/v1"
OURS: Final = (
    "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host",
    "openai-organization", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
)  # fmt: skip
"""Headers that ``headers:`` may not set, in lower case: the adapter or the protocol does."""
MADE: Final = (
    "functions", "max_completion_tokens", "max_tokens", "messages", "model", "n", "response_format", "stream",
    "stream_options", "temperature", "tools",
)  # fmt: skip
"""Members of the body that ``extra:`` may not set: they are made of the request and the other settings."""

Dialect: TypeAlias = Literal["openai", "compatible"]
Structured: TypeAlias = Literal["json_schema", "json_object", "none"]

_NAME: Final = {"type": "string", "minLength": 1}
_PRICE: Final = {"type": "number", "minimum": 0}
_HEADER: Final = {
    "anyOf": [
        {"type": "string", "pattern": "^[ -~]*$"},
        {"type": "object", "required": ["secret"], "properties": {"secret": _NAME}, "additionalProperties": False},
    ]
}

SETTINGS: Final[Object] = {
    "type": "object",
    "properties": {
        "base_url": {
            "type": "string",
            "pattern": r"^https?://[^/?#@\s]+(/[^?#\s]*)?$",
            "description": "Where /chat/completions is found; without it OpenAI's own address.",
        },
        "dialect": {
            "enum": ["openai", "compatible"],
            "description": "Which of the protocol's spellings to use; by default as base_url suggests.",
        },
        "key": {**_NAME, "description": "The name of the secret that is sent as the bearer token."},
        "organization": {**_NAME, "pattern": "^[!-~]+$"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "max_output_tokens": {"type": "integer", "minimum": 1},
        "retries": {"type": "integer", "minimum": 0, "maximum": 10, "default": 2},
        "stream": {"type": "boolean", "default": False},
        "structured": {"enum": ["json_schema", "json_object", "none"], "default": "json_schema"},
        "prices": {
            "type": "object",
            "required": ["input_per_million", "output_per_million"],
            "properties": {
                "input_per_million": _PRICE,
                "cached_input_per_million": _PRICE,
                "output_per_million": _PRICE,
            },
            "additionalProperties": False,
            "description": "US dollars for a million tokens.",
        },
        "headers": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-zA-Z0-9-]+$"},
            "additionalProperties": _HEADER,
            "description": "Sent with each request; a value may be {secret: NAME}.",
        },
        "extra": {
            "type": "object",
            "propertyNames": {"not": {"enum": list(MADE)}},
            "description": "More members of the request's body, as the endpoint knows them.",
        },
    },
    "additionalProperties": False,
}


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of one model, checked and complete. *prices* are US dollars for a million tokens."""

    base_url: str
    dialect: Dialect
    key: str | None = None
    organization: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    retries: int = 2
    stream: bool = False
    structured: Structured = "json_schema"
    prices: Mapping[str, float] | None = None
    headers: Mapping[str, Any] = attrs.field(factory=dict)
    extra: Object = attrs.field(factory=dict)

    @classmethod
    def of(cls, told: Object) -> "Settings":
        """Read what stands in YAML, which fits `SETTINGS`; raises ``ValueError`` for what a schema cannot say."""
        base_url = told.get("base_url", OPENAI).rstrip("/")
        own: Dialect = "openai" if base_url == OPENAI else "compatible"
        settings = cls(**{"dialect": own, **told, "base_url": base_url})
        taken = [name for name in settings.headers if name.lower() in OURS]
        if taken:
            raise ValueError(f"headers: {', '.join(taken)} cannot be set; the adapter sets it (a key goes to key:)")
        return settings
