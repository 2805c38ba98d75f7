"""Approval requests and answers: the keys of people, and performing what was approved."""
