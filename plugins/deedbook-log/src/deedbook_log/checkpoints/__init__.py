"""When a checkpoint is written, with which key, and who else signs it."""
