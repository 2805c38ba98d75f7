"""The conformance kit with a host behind a guard: what passes, and that the ledger's checks find a host that cheats."""

from pathlib import Path

import pytest
from agent_hooks.ctk import load_vectors
from deedbook_adapter_agent_hooks.conformance.__main__ import main
from deedbook_adapter_agent_hooks.conformance.host import AgentLoop
from deedbook_adapter_agent_hooks.conformance.report import render, run_kit

from deedbook_guard import Conversation

README = Path(__file__).parents[1] / "README.md"


def vector(number):
    """Return one vector of the kit."""
    return next(each for each in load_vectors() if each["id"] == f"AH-CTK-{number}")


def test_page_has_the_report_of_the_kit(tmp_path):
    report = run_kit(tmp_path / "kit")
    assert report.ok, render(report) + report.unsound
    assert render(report) in README.read_text(encoding="utf-8")


def test_folder_that_exists_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err


def found(tmp_path, number):
    """Return the status of one vector, and why it did not pass."""
    (result,) = run_kit(tmp_path / "kit", vectors=[vector(number)]).results
    return result.status, " ".join(result.reasons)


def test_tool_that_runs_without_the_guard_is_found(tmp_path, monkeypatch):
    """The kit's own assertions pass: it does not know that there should be a record."""

    async def use(self, call):
        asked = await self._emit(self._builder.pre_tool_call(call_id=call["id"], name=call["name"], args=call["args"]))
        args = asked["tool_call"]["args"]
        value, failed = self._scenario.tools[call["name"]].invoke(args)
        self.ran.append({"name": call["name"], "args": args})
        await self._emit(
            self._builder.post_tool_call(call_id=call["id"], name=call["name"], args=args, value=value, is_error=failed)
        )
        return value

    monkeypatch.setattr(AgentLoop, "_use", use)
    status, why = found(tmp_path, "001")
    assert status == "failed"
    assert why.startswith("the tools ran [{'name': 'calculator'")
    assert why.endswith("and the ledger has the intents []")


def test_call_that_is_begun_although_it_was_denied_is_found(tmp_path, monkeypatch):
    emit = AgentLoop._emit

    async def careless(self, context):
        try:
            return await emit(self, context)
        except Exception:
            return context

    monkeypatch.setattr(AgentLoop, "_emit", careless)
    status, why = found(tmp_path, "010")
    assert status == "failed"
    assert "(tool.call) follows no allowed pre_tool_call" in why
    assert "1 calls that the interceptors denied are not recorded as denied" in why


def test_call_without_an_outcome_is_found(tmp_path, monkeypatch):
    async def forget(_self, _permit, value):
        return value

    monkeypatch.setattr(Conversation, "aafter", forget)
    status, why = found(tmp_path, "001")
    assert status == "failed"
    assert "the outcome of a call is unknown" in why


def test_request_without_the_guard_is_found(tmp_path, monkeypatch):
    ask = AgentLoop._ask

    async def twice(self, messages, answer):
        self.requests += 1
        return await ask(self, messages, answer)

    monkeypatch.setattr(AgentLoop, "_ask", twice)
    assert found(tmp_path, "002")[1] == "the model got 2 requests, and the ledger has 1"


def test_unsound_ledger_is_not_ok(tmp_path, monkeypatch):
    """The verification is one of the whole workspace, after the last vector."""
    end = Conversation.end

    def cut(self, *args, **kwargs):
        end(self, *args, **kwargs)
        place = Path(self.session.ledger.place)
        place.write_bytes(place.read_bytes().replace(b"calculator", b"calibrator"))

    monkeypatch.setattr(Conversation, "end", cut)
    report = run_kit(tmp_path / "kit", vectors=[vector("001")])
    assert not report.ok
    assert report.unsound


@pytest.mark.parametrize("number", ["010", "030"])
def test_door_is_asked_after_the_interceptors(tmp_path, monkeypatch, number):
    """A workspace that denies all its tools runs none, whatever the interceptors and the approver say."""
    monkeypatch.setattr("deedbook_adapter_agent_hooks.conformance.report._write_workspace", deny_tools)
    report = run_kit(tmp_path / "kit", vectors=[vector(number)])
    assert report.events["tool.call"] == 0
    assert report.events["tool.denied"] == 1
    assert not any("ledger" in reason for reason in report.results[0].reasons)
    assert not report.unsound


def deny_tools(folder, _tools):
    (folder / ".system").mkdir(parents=True)
    text = "schema_version: v1\nagents: {kit: {kind: program, unknown_tools: deny}}\n"
    (folder / ".system/deedbook.yaml").write_text(text)
