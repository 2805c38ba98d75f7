"""The writers beside a session: closing dead sessions, finishing erasures and excisions, imports."""
