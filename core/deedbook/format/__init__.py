"""Values, bytes, lines, hashes, schemas, notes, proofs and files: shared by writers and verifiers."""
