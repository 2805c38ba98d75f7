"""Faults and attacks that ledgers have to stand: the harness that tests run a little of, and a command in full.

``python -m benchmarks.faults`` runs the full figures; ``docs/reliability.md`` says what they are.
"""
