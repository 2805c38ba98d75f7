"""Merkle trees, written a second time: from the definitions of RFC 9162, section 2.1, recursively, and nothing else.

It shares no line with `deedbook_audit.transparency.merkle`, whose trees are kept and whose checks are loops.
"""

from hashlib import sha256


def leaf(data):
    """Return MTH({d}): 2.1.1."""
    return sha256(b"\x00" + data).digest()


def split(n):
    """Return the largest power of two smaller than *n*."""
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def root(leaves):
    """Return MTH(D[n]) over hashes of leaves: 2.1.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return sha256(b"\x01" + root(leaves[:k]) + root(leaves[k:])).digest()


def inclusion(m, leaves):
    """Return PATH(m, D[n]): 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if m < k:
        return [*inclusion(m, leaves[:k]), root(leaves[k:])]
    return [*inclusion(m - k, leaves[k:]), root(leaves[:k])]


def consistency(m, leaves):
    """Return PROOF(m, D[n]): 2.1.4.1; nothing for the empty tree."""
    return _subproof(m, leaves, whole=True) if m else []


def _subproof(m, leaves, *, whole):
    if m == len(leaves):
        return [] if whole else [root(leaves)]
    k = split(len(leaves))
    if m <= k:
        return [*_subproof(m, leaves[:k], whole=whole), root(leaves[k:])]
    return [*_subproof(m - k, leaves[k:], whole=False), root(leaves[:k])]


def root_by_path(m, n, hashed, path):
    """Return the root to which *path* leads from the leaf *m* of *n*; ``None`` where it has not the right length."""
    if n == 1:
        return hashed if not path else None
    if not path:
        return None
    *path, other = path
    k = split(n)
    below = root_by_path(m, k, hashed, path) if m < k else root_by_path(m - k, n - k, hashed, path)
    if below is None:
        return None
    return sha256(b"\x01" + (below + other if m < k else other + below)).digest()


def includes(top, n, m, hashed, path):
    return 0 <= m < n and root_by_path(m, n, hashed, list(path)) == top


def roots_by_proof(m, n, old, path, *, whole=True):
    """Return the roots of the old and of the new tree that a proof leads to; ``None`` for what is no proof."""
    if m == n:
        if whole:
            return (old, old) if not path else None
        return (path[0], path[0]) if len(path) == 1 else None
    if not path:
        return None
    *path, other = path
    k = split(n)
    if m <= k:
        below = roots_by_proof(m, k, old, path, whole=whole)
        return below and (below[0], sha256(b"\x01" + below[1] + other).digest())
    below = roots_by_proof(m - k, n - k, old, path, whole=False)
    return below and tuple(sha256(b"\x01" + other + each).digest() for each in below)


def is_consistent(m, old, n, new, path):
    if m == 0:
        return not path and old == sha256(b"").digest()
    return 0 < m <= n and roots_by_proof(m, n, old, list(path)) == (old, new)
