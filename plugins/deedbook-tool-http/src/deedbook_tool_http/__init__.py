"""One HTTP operation as an ability, spelled out in YAML."""
