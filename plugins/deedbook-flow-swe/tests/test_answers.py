"""Answers are chosen by what a request says, in every process the same, and doubtful ones fail."""

import json

import pytest

from deedbook import Failed
from deedbook.contract.plugins import FolderEntry
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.answers import Answers


class FolderHost:
    """A host on a real folder."""

    def __init__(self, root):
        self._folder = Folder.at(root)
        self.open = self._folder.open

    def scan(self, path):
        return [FolderEntry(f"{path}/{each.name}", False, 0) for each in self._folder.scan(path)]


@pytest.fixture
def play(tmp_path):
    """Return what writes files and returns a new model that plays them."""
    folder = tmp_path / "answers"
    folder.mkdir()

    def made(**files):
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text)
        return Answers({"folder": "answers"}, FolderHost(tmp_path))

    return made


def file(role="lead", when=(), **more):
    return json.dumps({"made_by": "hand", "role": role, "when": list(when), **(more or {"answer": {"n": role}})})


def say(model, text, role="lead"):
    return ask(model, [{"role": "user", "content": text}], role)


def ask(model, messages, role="lead"):
    given = model({"messages": messages, "role": role, "model": "m", "schema_version": "v2"}, None)
    assert Schemas.load(data_folder("schemas")).validator("completion_response_v2").violations(given) == ()
    return given


def test_file_with_the_most_texts_that_the_request_contains_answers(play):
    model = play(
        plain=file(answer={"n": 1}),
        unit=file(when=["unit-2"], answer={"n": 2}),
        again=file(when=["unit-2", "BLOCKED.md"], answer={"n": 3}),
        other=file(role="worker", when=["unit-2", "BLOCKED.md", "x"], answer={"n": 4}),
    )
    said = ["unit-1 x", "x unit-2", "unit-2 and BLOCKED.md x", "unit-1 x"]
    assert [json.loads(say(model, text)["text"])["n"] for text in said] == [1, 2, 3, 1]


def test_texts_are_looked_for_in_all_messages(play):
    model = play(first=file(), after=file(when=["denied"], answer={"n": "after"}))
    messages = [{"role": "user", "content": "go"}, {"role": "tool", "content": "denied", "tool_call_id": "1"}]
    assert json.loads(ask(model, messages)["text"]) == {"n": "after"}


def test_calls_are_given_before_an_answer(play):
    call = {"id": "1", "name": "echo", "args": {"text": "hi"}}
    response = say(play(first=file(tool_calls=[call])), "go")
    assert (response["tool_calls"], response["finish_reason"]) == ([call], "tool_use")


BAD = {
    "no role": ('{"made_by": "hand", "answer": {}}', "role: expected a text"),
    "nobody made it": ('{"role": "lead", "answer": {}}', "made_by: expected a text"),
    "neither": ('{"made_by": "hand", "role": "lead"}', "expected one of answer and tool_calls"),
    "both": (file(answer={}, tool_calls=[]), "expected one of answer and tool_calls"),
    "a text": (file(answer="hello"), "answer: expected a mapping"),
    "another key": (file(answer={}, whne=[]), "'whne' is no key"),
    "when is a text": (file(answer={}).replace("[]", '"x"'), "when: expected a list of texts"),
    "a list": ("[]", "expected a mapping"),
    "no YAML": ("a: [", "is no answer: "),
    "for another role": (file(role="worker"), "no file answers this request of 'lead'; its files: none"),
    "for another request": (file(when=["x"]), "no file answers this request of 'lead'; its files: answers/a.yaml"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_file_that_is_no_answer_fails(play, text, message):
    with pytest.raises(Failed, match=message) as caught:
        say(play(a=text), "go")
    assert caught.value.code == "PROVIDER_ERROR"


def test_two_files_that_fit_equally_fail(play):
    with pytest.raises(Failed, match=r"answers/a\.yaml and answers/b\.yaml answer the same request"):
        say(play(a=file(when=["g"]), b=file(when=["o"])), "go")


def test_folder_that_is_not_there_fails(tmp_path):
    with pytest.raises(Failed, match="none cannot be read") as caught:
        say(Answers({"folder": "none"}, FolderHost(tmp_path)), "go")
    assert caught.value.code == "PROVIDER_ERROR"
