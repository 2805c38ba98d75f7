// Trees as RFC 9162 defines them, and notes, checkpoints and keys as C2SP does.
import { createPublicKey, verify as checkSignature } from "node:crypto";
import { canonical, hold, sha } from "./ledger.mjs";

export const leafHash = (bytes) => sha(Buffer.of(0), bytes);
const nodeHash = (left, right) => sha(Buffer.of(1), left, right);
export const hex = (text) => Buffer.from(text, "hex");
export const EMPTY = sha(Buffer.alloc(0));
const half = (n) => { let k = 1; while (k * 2 < n) k *= 2; return k; };

export class Growing {  // the peaks of a tree, the largest first
  constructor() { this.size = 0; this.peaks = []; }
  push(leaf) {
    for (let rest = this.size; rest % 2; rest = (rest - 1) / 2) leaf = nodeHash(this.peaks.pop(), leaf);
    this.peaks.push(leaf);
    this.size += 1;
  }
  get root() { return this.peaks.length ? this.peaks.reduceRight((right, left) => nodeHash(left, right)) : EMPTY; }
  get told() { return this.peaks.map((peak) => peak.toString("hex")).join(); }
}

// The root that a path leads to, from the definition of PATH in RFC 9162.
export function byPath(index, size, own, path) {
  if (size === 1) return path.length ? null : own;
  if (!path.length) return null;
  const k = half(size), other = path.at(-1), rest = path.slice(0, -1);
  const below = index < k ? byPath(index, k, own, rest) : byPath(index - k, size - k, own, rest);
  return below && (index < k ? nodeHash(below, other) : nodeHash(other, below));
}

// Both roots that a proof leads to, from the definition of PROOF.
export function byProof(old, size, oldRoot, path, whole = true) {
  if (old === size && whole) return path.length ? null : [oldRoot, oldRoot];
  if (old === size) return path.length === 1 ? [path[0], path[0]] : null;
  if (!path.length) return null;
  const k = half(size), other = path.at(-1), rest = path.slice(0, -1);
  if (old <= k) { const b = byProof(old, k, oldRoot, rest, whole); return b && [b[0], nodeHash(b[1], other)]; }
  const b = byProof(old - k, size - k, oldRoot, rest, false);
  return b && b.map((each) => nodeHash(other, each));
}

export function key(text, algorithm) {  // name+id+base64(algorithm || public key)
  const [, name, id, digits] = /^([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$/.exec(text) ?? [];
  const raw = Buffer.from(digits ?? "", "base64");
  hold(raw.length === 33 && raw[0] === algorithm, "key");
  hold(sha(`${name}\n`, raw).toString("hex").startsWith(id), "key id");
  const der = Buffer.concat([hex("302a300506032b6570032100"), raw.subarray(1)]);
  return { text, name, id, public: createPublicKey({ key: der, format: "der", type: "spki" }) };
}

export function note(text) {
  const at = text.lastIndexOf("\n\n");
  hold(at > 0 && text.endsWith("\n"), "note");
  const signatures = text.slice(at + 2, -1).split("\n").map((line) => {
    const [, name, digits] = /^— ([^ ]+) ([A-Za-z0-9+/]+={0,2})$/.exec(line) ?? [];
    const raw = Buffer.from(digits ?? "", "base64");
    hold(raw.length > 4 && raw.toString("base64") === digits, "signature line");
    return { name, id: raw.subarray(0, 4).toString("hex"), value: raw.subarray(4) };
  });
  return { text: text.slice(0, at + 1), signatures };
}

const of = (made, by) => made.signatures.filter((each) => each.name === by.name && each.id === by.id);
export const signed = (made, by) => of(made, by).length > 0 &&
  of(made, by).every(({ value }) => checkSignature(null, Buffer.from(made.text), by.public, value));
const message = (time, text) => Buffer.from(`cosignature/v1\ntime ${time}\n${text}`);
export const cosigned = (made, by) => of(made, by).length > 0 && of(made, by).every(({ value }) =>
  value.length === 72 &&
  checkSignature(null, message(value.readBigUInt64BE(), made.text), by.public, value.subarray(8)));

export function checkpoint(text) {
  const [, origin, size, root] = /^([^\n]+)\n(0|[1-9][0-9]*)\n([A-Za-z0-9+/]{43}=)\n$/.exec(text) ?? [];
  hold(origin && Buffer.from(root, "base64").toString("base64") === root, "checkpoint");
  return { origin, size: Number(size), root: Buffer.from(root, "base64") };
}

export function statement(made) {  // a key of the log comes into force
  const [title, origin, own, previous, ...rest] = made.text.split("\n");
  hold(title === "deedbook log key v1" && rest.join() === "", "statement of a key");
  hold(signed(made, key(own, 1)), "a key did not sign for itself");
  return { origin, own, previous, made };
}

export const leafData = ({ head, root, session_id, size }) => Buffer.from(canonical({ head, root, session_id, size }));
const kind = (text) => Buffer.from(text.split("+").slice(2).join("+"), "base64")[0];
export const split = (keys) =>
  [1, 4].map((each) => keys.filter((text) => kind(text) === each).map((text) => key(text, each)));
