"""The exception for a gate without a valid answer."""


class NoAnswer(Exception):  # noqa: N818 - a state of a gate
    """A gate has no valid answer; the message is the complete reason to record.

    Only the kernel raises it, where it asks a gate. A plugin may raise any exception, which counts as a denial.
    """
