"""What pipelines learn from finished tasks: rewards, evidence about patterns, metrics and the routing of models."""
