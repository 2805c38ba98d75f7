"""The loader keeps the contract that third parties keep."""

from deedbook_testing import SkillLoaderContract


class TestMarkdown(SkillLoaderContract):
    name = "markdown"
    skills = {"greet": ["echo"], "survey": ["echo", "count"]}

    def prepare(self, lab):
        for name, allowed in self.skills.items():
            lab.skill(name, allows=" ".join(allowed))

    def spoil(self, lab):
        lab.write("skills/broken/SKILL.md", "no front matter\n")
        return "skills/broken/SKILL.md:1"
