"""Contract tests of plugins that are wrong; copied into a folder of their own and run there."""

from deedbook_testing import (
    Example,
    FlowContract,
    GateCase,
    HookContract,
    PackContract,
    PolicyContract,
    ProviderContract,
    SkillLoaderContract,
    ToolContract,
)


class _Tool(ToolContract):
    examples = (Example({"a": [1]}),)


class TestFine(_Tool):
    name = "fine"


class TestWrites(_Tool):
    name = "writes"


class TestKeeps(_Tool):
    name = "keeps"


class TestChanges(_Tool):
    name = "changes"


class TestDiffers(_Tool):
    name = "differs"


class TestTakesAnySetting(_Tool):
    name = "takes-any-setting"


class TestTells(_Tool):
    name = "tells"
    settings = {"key": "mine"}
    secrets = {"mine": "s3cr3t-0123456789"}


class TestSleeps(_Tool):
    name = "sleeps"
    patience = 0.3


class TestHosted(_Tool):
    name = "hosted"


class TestOpens(_Tool):
    name = "opens"


class TestThreads(_Tool):
    name = "threads"


class TestPeeks(_Tool):
    name = "peeks"


class TestHeavy(_Tool):
    name = "fine"
    heavy = ("deedbook",)


class TestAbsent(_Tool):
    name = "absent"


class TestNoExamples(ToolContract):
    name = "fine"


class TestWrongExample(ToolContract):
    name = "fine"
    examples = (Example({}, gives={"fine": False}),)


class TestProvider(ProviderContract):
    name = "provider"


class TestProse(ProviderContract):
    name = "prose"


class TestInvents(ProviderContract):
    name = "invents"


class TestBare(ProviderContract):
    name = "bare"


class _Flow(FlowContract):
    examples = (Example("go", gives="done"),)


class TestFlow(_Flow):
    name = "flow"


class TestMovesOn(_Flow):
    name = "moves-on"


class TestRandom(_Flow):
    name = "random"


class TestWritingFlow(_Flow):
    name = "writing-flow"


class _Cases:
    cases = (GateCase(), GateCase(), GateCase(ability="forbidden", decides="deny"))


class TestHook(_Cases, HookContract):
    name = "hook"


class TestCounts(_Cases, HookContract):
    name = "counts"


class TestReads(_Cases, HookContract):
    name = "reads"


class TestLax(_Cases, HookContract):
    name = "lax"


class TestRaises(_Cases, HookContract):
    name = "raises"


class TestUnmarked(_Cases, HookContract):
    name = "unmarked"


class TestPolicy(_Cases, PolicyContract):
    name = "policy"


class TestCountingPolicy(_Cases, PolicyContract):
    name = "counting-policy"


class TestReadingPolicy(_Cases, PolicyContract):
    name = "reading-policy"


class TestLaxPolicy(_Cases, PolicyContract):
    name = "lax-policy"


class TestFragilePolicy(_Cases, PolicyContract):
    name = "fragile-policy"
    settings = {"answer": "yes"}


class TestPointlessPolicy(_Cases, PolicyContract):
    name = "pointless-policy"


class _Subjects(PolicyContract):
    cases = (GateCase(about="finding", subject={"severity": "minor"}),)


class TestJudging(_Subjects):
    name = "judging"


class TestFailingSubject(_Subjects):
    name = "failing-subject"


class TestAskingSubject(_Subjects):
    name = "asking-subject"


class TestUnnamedSubject(_Subjects):
    name = "unnamed-subject"


class TestCountingSubject(_Subjects):
    name = "counting-subject"


class _Loader(SkillLoaderContract):
    skills = {"greet": ["echo"]}

    def prepare(self, lab):
        lab.write("skills/list.md", "greet:Greets.\n")
        lab.tool("other", lambda args, ctx: args)

    def spoil(self, lab):
        lab.write("skills/list.md", "greet:Greets.\nhalf\n")
        return "list.md: half has no description"


class TestLoader(_Loader):
    name = "loader"


class TestSkips(_Loader):
    name = "skips"


class TestWidens(_Loader):
    name = "widens"


class TestVaries(_Loader):
    name = "varies"


class TestPack(PackContract):
    name = "pack"
    brings = {"policies": ["calm"]}


class TestLacking(PackContract):
    name = "pack"
    brings = {"policies": ["calm", "storm"]}


class TestCode(PackContract):
    name = "code"
    brings = {"policies": ["calm2"]}


class TestEmpty(PackContract):
    name = "empty"
    brings = {"policies": ["calm"]}
