"""The house rules of Acme: data in a package that is never imported."""
