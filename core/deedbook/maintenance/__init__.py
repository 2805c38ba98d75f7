"""The processes of a workspace, and the writers beside a session: close dead sessions, finish erasures, imports."""
