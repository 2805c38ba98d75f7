"""A call, from the door to the handler and back. `docs/life-of-a-call.md` describes the same steps.

1. `sessions/session.py`: a session and its caller.
2. `call/door.py`: the nine steps that every effect takes. Start reading here.
3. `policy/judge.py`: steps 1 to 4, which decide about the call without any I/O.
4. `policy/gates.py`: how one hook or policy is asked, and how answers are merged.
5. `call/records.py`: step 5, the intent and its decisions as events.
6. `ledger/chain.py`: events become lines, each committed to by the next.
7. `ledger/journal.py`: one write and one sync for all of them.
8. `call/handlers.py`: steps 6 and 7, the handler within its limit, and its outcome.
9. `call/approval_wait.py`: a call that waits for an approval.
"""
