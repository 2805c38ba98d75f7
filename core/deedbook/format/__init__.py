"""Values, bytes, lines, hashes, schemas, notes, proofs and files: what writers and verifiers share."""
