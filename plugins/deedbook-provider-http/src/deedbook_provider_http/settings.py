"""What stands under ``with:`` of a model in a profile, as far as providers over HTTP agree on it."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final, Self
from urllib.parse import urlsplit

import attrs

from deedbook import Failed, Object

OURS: Final = frozenset(
    (
        "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host",
        "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    )
)  # fmt: skip
"""Headers that ``headers:`` may not set, in lower case: the provider or the protocol sets them."""

_KEYS: Final = "^(sk|rk|pk|xai|gsk|csk|pplx|nvapi|hf|r8|AIza|ya29)[-_.]?[A-Za-z0-9_.-]*[0-9][A-Za-z0-9_.-]{7}"
_NAME: Final = {
    "type": "string",
    "minLength": 1,
    "not": {"anyOf": [{"pattern": _KEYS}, {"pattern": "[A-Za-z0-9]{32}"}, {"pattern": "[^A-Za-z0-9._-]"}]},
    "title": "the name of a secret, which secrets: declares; if a key is written here, remove it and revoke it",
}
"""The name of a secret, and nothing that looks like a key: settings are stored with the charter."""
_PRICE: Final = {"type": ["number", "null"], "minimum": 0}
_READ: Final = {
    "date": {
        "type": "string",
        "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$",
        "description": "When the prices were read.",
    },
    "source": {
        "type": "string",
        "minLength": 1,
        "description": "Where the prices were read, such as the address of a page.",
    },
}
_HEADER: Final = {
    "anyOf": [
        {"type": "string", "pattern": "^[ -~]*$"},
        {"type": "object", "required": ["secret"], "properties": {"secret": _NAME}, "additionalProperties": False},
    ]
}


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of one model, checked and complete.

    *prices* are US dollars for a million tokens, ``None`` where one is not known, and when and where they were read.
    """

    base_url: str
    key: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    stream: bool = False
    structured: str = "json_schema"
    prices: Mapping[str, Any] | None = None
    headers: Mapping[str, Any] = attrs.field(factory=dict)
    extra: Object = attrs.field(factory=dict)

    @classmethod
    def of(cls, given: Object, *, base_url: str, own: Iterable[str] = ()) -> Self:
        """Read settings that fit `settings_schema`; *base_url* is the default, *own* are further reserved headers.

        Raises `Failed` for what a schema cannot say.
        """
        made = cls(**{**given, "base_url": given.get("base_url", base_url).rstrip("/")})
        reserved = OURS | {*own}
        taken = [name for name in made.headers if name.lower() in reserved]
        if taken:
            why = f"headers: {', '.join(taken)} cannot be set; the provider sets it (a key goes to key:)"
            raise Failed("BINDING_INVALID", why)
        secrets = [made.key, *(each["secret"] for each in made.headers.values() if isinstance(each, Mapping))]
        if any(secrets) and not _is_private(made.base_url):
            why = f"base_url: {made.base_url} would send {', '.join(filter(None, secrets))} unencrypted; write https://"
            raise Failed("BINDING_INVALID", f"{why}, http:// is for this machine (127.0.0.1, [::1], localhost)")
        return made


def _is_private(address: str) -> bool:
    """Return whether nobody else can read what is sent to *address*: it is encrypted, or stays on this machine."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def settings_schema(
    *, structured: Iterable[str], reserved: Iterable[str], prices: Iterable[str] = (), temperature: float | None = None
) -> Object:
    """Return the JSON Schema of the settings.

    *structured* are the ways to ask for a form, the default first; *reserved* are the members of the body that
    ``extra:`` may not set; *prices* are names of prices beside the usual three; *temperature* is the highest one.
    """
    ways = list(structured)
    named = ("input_per_million", "cached_input_per_million", "output_per_million", *prices)
    return {
        "type": "object",
        "properties": {
            "base_url": {
                "type": "string",
                "pattern": r"^https?://[^/?#@\s]+(/[^?#\s]*)?$",
                "title": "an address such as https://example.com/v1, without ?, #, spaces, a name or a password",
                "description": "Where the endpoint is; without it the vendor's own address.",
            },
            "key": {**_NAME, "description": "The name of the secret that holds the key."},
            "temperature": {"type": "number", "minimum": 0} | ({} if temperature is None else {"maximum": temperature}),
            "max_output_tokens": {"type": "integer", "minimum": 1},
            "stream": {"type": "boolean", "default": False},
            "structured": {"enum": ways, "default": ways[0]},
            "prices": {
                "type": "object",
                "required": ["input_per_million", "output_per_million"],
                "properties": {**dict.fromkeys(named, _PRICE), **_READ},
                "additionalProperties": False,
                "description": "US dollars for a million tokens; null for a price that is not known.",
            },
            "headers": {
                "type": "object",
                "propertyNames": {"pattern": "^[a-zA-Z0-9-]+$"},
                "additionalProperties": _HEADER,
                "description": "Sent with each request; a value may be {secret: NAME}.",
            },
            "extra": {
                "type": "object",
                "propertyNames": {
                    "not": {"enum": sorted(reserved)},
                    "title": "only members that the provider does not set itself, as it does model and messages; "
                    "its page lists them",
                },
                "description": "More members of the request's body, as the endpoint knows them.",
            },
        },
        "additionalProperties": False,
    }
