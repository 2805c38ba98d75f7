"""What the kernel raises where a gate gives no answer that counts."""


class Unanswered(Exception):  # noqa: N818 - it says what a gate is
    """A gate has no answer that counts; the message is the reason to record, in whole.

    The kernel raises it where it asks a gate: a plugin raises what it likes, which counts as a denial.
    """
