"""The writers beside a session: closing dead sessions, import, amend, erase, excise."""
