"""The log of a workspace: checkpoints, proofs, witnesses."""
