"""The house rules of Acme: data in a package that nobody imports."""
