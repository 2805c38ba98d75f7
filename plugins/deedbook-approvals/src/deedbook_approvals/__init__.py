"""The commands of people who answer requests: what waits, their answers, and the keys that sign them."""
