// Checks hashes and chain of Deedbook ledgers, as docs/ledger-format.md describes them. Usage: node verify.mjs FILE...
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const hash = (bytes) => createHash("sha256").update(bytes, "latin1").digest("hex");
const OPENING = /^\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})"/;
const ENDING = /"payload_hash":"([0-9a-f]{64})","prev_envelope_hash":"([0-9a-f]{64})"$/;
const CLOSING = /^([0-9a-f]{64})","payload":(\{[^]*)\}$/;

function fault(text) {
  const lines = text.split("\n");
  if (lines.pop() !== "") return "torn";
  const id = OPENING.exec(lines[0] ?? "")?.[1];
  if (!id) return "line 1: header";
  let before = hash(`deedbook-${/^ws-[0-9a-f]{32}$/.test(id) ? "workspace" : "session"}-1.1\n${id}`);
  for (const [index, line] of lines.entries()) {
    const [header, ...rest] = line.split(',"envelope_hash":"');
    const [, payloadHash, prev] = ENDING.exec(header) ?? [];
    const [, own, payload] = CLOSING.exec(rest.join(',"envelope_hash":"')) ?? [];
    const wrong = !prev || !own ? "header" : own !== hash(header) ? "envelope_hash" : prev !== before
      ? "prev_envelope_hash" : payloadHash !== hash(payload) ? "payload_hash" : "";
    if (wrong) return `line ${index + 1}: ${wrong}`;
    before = own;
  }
  return "";
}

for (const file of process.argv.slice(2)) console.log(fault(readFileSync(file, "latin1")) || "sound");
