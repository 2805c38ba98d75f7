"""Default policies in three strengths: data that nobody imports."""
