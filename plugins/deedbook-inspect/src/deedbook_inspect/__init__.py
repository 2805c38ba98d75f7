"""Readers of ledgers: trees, replays, statistics, exports, explanations."""
