"""Policy kinds for Deedbook: ``rules`` (`rules`, with conditions in CEL) and ``budget`` (`budgets`)."""

__version__ = "0.1.0"
