"""Pipelines of phases: contracts that a machine checks, and the flow that works under them."""
