"""What stands under ``with:`` of a model in a profile."""

from typing import Final, Literal, TypeAlias

import attrs

from deedbook import Object
from deedbook_provider_http import Settings, settings_schema

OPENAI: Final = "https://api.openai.com/v1"
OURS: Final = ("openai-organization",)
"""Headers that ``headers:`` may not set beside the usual ones, in lower case."""
MADE: Final = (
    "functions", "input", "instructions", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages",
    "model", "n", "previous_response_id", "response_format", "store", "stream", "stream_options", "temperature", "text",
    "tools",
)  # fmt: skip
"""Members of the body that ``extra:`` may not set: they are made of the request and the other settings."""

Dialect: TypeAlias = Literal["openai", "compatible"]

_COMMON: Final = settings_schema(structured=("json_schema", "json_object", "none"), reserved=MADE, temperature=2)
SETTINGS: Final[Object] = {
    **_COMMON,
    "properties": {
        **_COMMON["properties"],
        "api": {
            "enum": ["chat_completions", "responses"],
            "default": "chat_completions",
            "description": "Which of OpenAI's two protocols to speak.",
        },
        "dialect": {
            "enum": ["openai", "compatible"],
            "description": "Which of the protocol's spellings to use; by default as base_url suggests.",
        },
        "organization": {"type": "string", "minLength": 1, "pattern": "^[!-~]+$"},
    },
}


@attrs.frozen(kw_only=True)
class OpenAISettings(Settings):
    """The settings of one model, checked and complete."""

    dialect: Dialect
    api: Literal["chat_completions", "responses"] = "chat_completions"
    organization: str | None = None

    @classmethod
    def read(cls, given: Object) -> "OpenAISettings":
        """Read what stands in YAML, which fits `SETTINGS`; raises `Failed` for what a schema cannot say."""
        address = given.get("base_url", OPENAI).rstrip("/")
        own: Dialect = "openai" if address == OPENAI else "compatible"
        return cls.of({"dialect": own, **given}, base_url=OPENAI, own=OURS)
