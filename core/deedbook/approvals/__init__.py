"""The keys of people, and the results that they give in place of a call."""
