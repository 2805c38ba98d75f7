"""The feature `notify`: its settings are the targets of `deedbook notify`; it takes no part in sessions."""

from typing import ClassVar, Final

from deedbook.contract import Object
from deedbook.contract.features import FeatureSpec

FEATURE: Final = "notify"
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 500, "pattern": "^[^\\x00-\\x1f\\x7f]+$"}
_SECRET: Final = {
    "type": "object",
    "required": ["secret"],
    "properties": {"secret": _TEXT},
    "additionalProperties": False,
}
_EMAIL: Final = {
    "type": "object",
    "required": ["server", "from", "to"],
    "properties": {
        "server": _TEXT,
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "tls": {"enum": ["starttls", "tls", "none"]},
        "from": _TEXT,
        "to": {"type": "array", "minItems": 1, "maxItems": 20, "items": _TEXT},
        "user": _TEXT,
        "password": _SECRET,
    },
    "dependentRequired": {"user": ["password"], "password": ["user"]},
    "additionalProperties": False,
}
_TARGET: Final = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "properties": {
        "webhook": _SECRET,
        "email": _EMAIL,
        "command": {
            "type": "object",
            "required": ["run"],
            "properties": {
                "run": {"type": "array", "minItems": 1, "maxItems": 50, "items": _TEXT},
                "env": {"type": "object", "additionalProperties": {"oneOf": [_TEXT, _SECRET]}},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
_SETTINGS: Final[Object] = {
    "type": "object",
    "required": ["targets"],
    "properties": {
        "targets": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[a-z0-9][a-z0-9-]{0,31}$"},
            "additionalProperties": _TARGET,
        }
    },
    "additionalProperties": False,
}


class NotifyFeature:
    """Declares the targets of notifications."""

    spec: ClassVar[FeatureSpec] = FeatureSpec(settings=_SETTINGS)
