"""Cards of agents for tests."""

SEED_CARD = """\
identity: orion
domain: backend-engineering

capabilities:
  - run_sql
  - http_request
  - read_file

state:
  skills: skills.md
  goals: goals.md

budget:
  max_skills: 20
"""
