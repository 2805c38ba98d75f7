"""The witness: a program of its own, which remembers how far each log was and signs only what goes on from there."""
