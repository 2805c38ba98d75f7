"""Other hooks and permission callbacks of the same options: they may not change the arguments that were judged.

The CLI asks all hooks at once and uses the last answer, so a change would replace what the guard has judged.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow, PermissionResultDeny

_REASON: Final = "another hook changed the arguments; only a hook of Deedbook may do that, since it is judged"


def keep_arguments(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """Return *options* whose callbacks refuse a call instead of changing its arguments."""
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
            answer = {**answer, "hookSpecificOutput": {k: v for k, v in specific.items() if k != "updatedInput"}}
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
