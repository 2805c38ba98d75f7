"""Reading ledgers: trees, replays, statistics, exports, explanations."""
