"""The writers beside a session: closing what died, import, amend, erase, excise."""
