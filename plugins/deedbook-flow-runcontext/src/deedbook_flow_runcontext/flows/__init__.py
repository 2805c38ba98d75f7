"""The flows of this distribution. Start with `plan_and_run`; `modes` has what the others share."""
