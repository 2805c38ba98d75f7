"""Checkpoints: when they are written, with which key, and the witnesses that sign them."""
