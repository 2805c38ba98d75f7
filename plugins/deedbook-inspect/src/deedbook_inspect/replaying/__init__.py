"""A session as a story for people: text, JSON and one HTML page."""
