"""The names of OpenTelemetry's conventions for generative AI, copied; all are of status Development.

Source: https://github.com/open-telemetry/semantic-conventions-genai, as of November 2026. The library of constants is
not imported: an update may rename what is in development, and the spans of a ledger have to stay the same.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The schema of the spans' names."""

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
WORKFLOW: Final = "gen_ai.workflow.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
TEMPERATURE: Final = "gen_ai.request.temperature"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR: Final = "error.type"

OWN: Final = "deedbook"
"""The provider of operations of the runtime itself, and the prefix of attributes without a convention."""
PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {"gemini": "gcp.gemini", "mistral": "mistral_ai", "bedrock": "aws.bedrock", "xai": "x_ai"}
)
"""Providers that the conventions name differently than their plugins."""
