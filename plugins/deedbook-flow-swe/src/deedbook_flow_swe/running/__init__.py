"""The runner of a pipeline: the state machine, the phases, the gates and the renderings of a task."""
