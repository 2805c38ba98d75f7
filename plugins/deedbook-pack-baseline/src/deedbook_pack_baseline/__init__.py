"""Default policies in three strengths: data, which no code imports."""
