"""Options under which every call is judged, and what runs is what was judged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow, PermissionResultDeny

from deedbook.format.errors import BindingError, fault

_BARE: Final = "CLAUDE_CODE_SIMPLE"
"""The variable for the bare mode of the CLI, in which it asks no hooks. Each settings file can set it."""
_REFUSED: Final = {"bare": "the CLI then asks no hooks", "settings": "give it as the option settings"}
_REASON: Final = "another hook changed the arguments; only a hook of Deedbook may do that, since it is judged"


def ask_hooks(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """Return *options* without the bare mode, also if a settings file sets it; raises `BindingError`."""
    for name, why in _REFUSED.items():
        if name in options.extra_args:
            raise _refusal(f"extra_args {name!r} cannot be governed: {why}")
    settings = _read_settings(options)
    settings["env"] = {**settings.get("env", {}), _BARE: ""}
    return replace(options, env={**options.env, _BARE: ""}, settings=json.dumps(settings))


def _read_settings(options: ClaudeAgentOptions) -> dict[str, Any]:
    """Return the settings, which are JSON or the path of a file, relative to *cwd*, as the SDK reads them."""
    text = (options.settings or "{}").strip()
    try:
        if not text.startswith("{"):
            text = (Path(options.cwd or "") / text).read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as problem:
        raise _refusal(f"the option settings cannot be read: {problem}") from None
    if not isinstance(found, dict) or not isinstance(found.get("env", {}), dict):
        raise _refusal("the option settings: an object is expected, and its env has to be one")
    return found


def _refusal(why: str) -> BindingError:
    return BindingError(fault("BINDING_INVALID", why))


def keep_arguments(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """Return *options* whose callbacks refuse a call instead of changing its arguments.

    The CLI asks all hooks at once and uses the last answer, so a change would replace what the guard has judged.
    """
    hooks: dict[Any, list[HookMatcher]] = dict(options.hooks or {})
    for event, refuse in (("PreToolUse", _refuse_call), ("PermissionRequest", _refuse_permission)):
        if event in hooks:
            hooks[event] = [
                replace(each, hooks=[_checked_hook(hook, refuse) for hook in each.hooks]) for each in hooks[event]
            ]
    permission = options.can_use_tool
    return replace(options, hooks=hooks, can_use_tool=_checked_permission(permission) if permission else None)


def _checked_hook(hook: Callable[..., Any], refuse: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    async def check(given: Any, tool_use_id: str | None, context: Any) -> Any:
        answer = await hook(given, tool_use_id, context)
        specific = (answer or {}).get("hookSpecificOutput") or {}
        decision = specific.get("decision") or {}
        for part in (specific, decision):
            if part.get("updatedInput", given["tool_input"]) != given["tool_input"]:
                return refuse()
        if "updatedInput" in specific:
            kept = {name: each for name, each in specific.items() if name != "updatedInput"}
            answer = {**answer, "hookSpecificOutput": kept}
        return answer

    return check


def _checked_permission(permission: Callable[..., Any]) -> Callable[..., Any]:
    async def check(name: str, args: dict[str, Any], context: Any) -> Any:
        answer = await permission(name, args, context)
        if isinstance(answer, PermissionResultAllow) and answer.updated_input not in (None, args):
            return PermissionResultDeny(message=_REASON)
        return answer

    return check


def _refuse_call() -> dict[str, Any]:
    told = {"permissionDecision": "deny", "permissionDecisionReason": _REASON}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **told}}


def _refuse_permission() -> dict[str, Any]:
    told = {"behavior": "deny", "message": _REASON}
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": told}}
