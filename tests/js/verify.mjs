// Checks Deedbook's ledgers, logs and proofs, as docs/ledger-format.md and docs/proofs.md describe them.
//   node verify.mjs FILE...                          each ledger: hashes, template, canonical form, structure, payloads
//   node verify.mjs --hashes FILE...                 hashes and chain alone
//   node verify.mjs --state DIR [KEY...]             a state folder: every ledger, and the log with its checkpoints
//   node verify.mjs --proof FILE... [KEY...]         each proof; a KEY is of a log or a witness, and is believed
// One line of output for each: "sound" or "proved", or where it fails and at what. Approvals, tasks, processes and what
// a charter declares are not judged here.
import { createHash, createPublicKey, verify as checkSignature } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";

const sha = (...bytes) => bytes.reduce((h, b) => h.update(b), createHash("sha256")).digest();
const hash = (bytes) => sha(Buffer.from(bytes, "latin1")).toString("hex");
const OPENING = /^\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})"/;
const ENDING = /"payload_hash":"([0-9a-f]{64})","prev_envelope_hash":"([0-9a-f]{64})"$/;
const CLOSING = /^([0-9a-f]{64})","payload":(\{[^]*)\}$/;
const HEADER = new RegExp(
  '^\\{"schema_version":"1\\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})","trace_id":"([0-9a-f]{32})"' +
  ',"seq":(0|[1-9][0-9]{0,15}),"ts":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z)"' +
  ',"event_type":"([a-z][a-z0-9_]*(?:\\.[a-z][a-z0-9_]*)+)","actor":"(?:runtime|user|agent|tool|policy|system)"' +
  ',"principal":(?:null|"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}"),"span_id":"([0-9a-f]{16})"' +
  ',"parent_span_id":(?:null|"([0-9a-f]{16})"),"payload_hash":"[0-9a-f]{64}","prev_envelope_hash":"[0-9a-f]{64}"$');
const OLD = /"payload":(\{[^]*\}),"payload_hash":"([0-9a-f]{64})","schema_version":"1\.0"/;
const KEPT = /^(ledger|session|system|payload)\.|^approval\.(granted|answered)$/;  // never excised
const AFTER_END = /^ledger\.|^(event\.amended|payload\.erased)$/;
const INTENTS = { "tool.result": "tool.call", "tool.error": "tool.call", "llm.response": "llm.request",
  "llm.error": "llm.request", "flow.result": "flow.call", "flow.error": "flow.call", "memory.result": "memory.call",
  "memory.error": "memory.call" };
const ALIASES = { "tool.invoke": "tool.call", "session.close": "session.end" };
const SCHEMAS = new URL("../../schemas/", import.meta.url);
class Fault extends Error {}
const hold = (truth, why) => { if (!truth) throw new Fault(why); };

// --- ledgers ---------------------------------------------------------------------------------------------------------

function* lines(text) {  // hashes and chain, line by line
  const all = text.split("\n");
  hold(all.pop() === "", "torn");
  const id = OPENING.exec(all[0] ?? "")?.[1];
  hold(id, "line 1: header");
  let before = hash(`deedbook-${/^ws-[0-9a-f]{32}$/.test(id) ? "workspace" : "session"}-1.1\n${id}`);
  const excised = new Map();
  for (const [index, line] of all.entries()) {
    const [header, ...rest] = line.split(',"envelope_hash":"');
    const [, payloadHash, prev] = ENDING.exec(header) ?? [];
    const [, own, payload] = CLOSING.exec(rest.join(',"envelope_hash":"')) ?? [];
    const gone = payload === `{"$excised":"${payloadHash}"}` && !KEPT.test(HEADER.exec(header)?.[5] ?? "ledger.");
    const wrong = !prev || !own ? "header" : own !== hash(header) ? "envelope_hash" : prev !== before
      ? "prev_envelope_hash" : payloadHash !== hash(payload) && !gone ? "payload_hash" : "";
    hold(!wrong, `line ${index + 1}: ${wrong}`);
    if (gone) excised.set(index, payloadHash);
    else if (excised.size && header.includes(',"event_type":"ledger.excised"')) {
      const said = JSON.parse(Buffer.from(payload, "latin1").toString());
      if (excised.get(said.seq) === said.payload_hash) excised.delete(said.seq);
    }
    before = own;
    yield { index, header, payload, own, gone };
  }
  for (const index of excised.keys()) hold(false, `line ${index + 1}: excised`);
}

function canonical(value, depth = 0, count = { values: 0 }) {  // RFC 8785, and the limits of the format
  hold(depth <= 72 && ++count.values <= 600000, "canonical");
  if (typeof value === "number")
    hold(!/^-?[0-9]+$/.test(String(value)) || Math.abs(value) <= Number.MAX_SAFE_INTEGER, "canonical");
  if (typeof value === "string") hold(value.isWellFormed(), "json");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, depth + 1, count)).join(",")}]`;
  const member = (name) => `${canonical(name, depth + 1, { values: 0 })}:${canonical(value[name], depth + 1, count)}`;
  return `{${Object.keys(value).sort().map(member).join(",")}}`;
}

function sealed(value, folder) {  // every commitment: a file that is there is what was committed to
  if (value === null || typeof value !== "object") return;
  if (!Array.isArray(value) && Object.hasOwn(value, "$sealed")) {
    const { $sealed: digest, size } = value;
    hold(Object.keys(value).length === 2 && /^[0-9a-f]{64}$/.test(digest) && Number.isInteger(size), "sealed");
    const place = join(folder, "sealed", digest);
    const raw = existsSync(place) ? readFileSync(place) : null;
    hold(!raw || (sha(raw).toString("hex") === digest && raw.length - 32 === size), "sealed");
    return;
  }
  for (const item of Object.values(value)) sealed(item, folder);
}

const known = new Map();
function schema(type) {
  const place = new URL(`event_${type.replaceAll(".", "_")}_v1.json`, SCHEMAS);
  if (!known.has(type)) known.set(type, existsSync(place) ? JSON.parse(readFileSync(place)) : null);
  return known.get(type);
}

const TYPES = { object: (v) => v !== null && typeof v === "object" && !Array.isArray(v), array: Array.isArray,
  string: (v) => typeof v === "string", integer: Number.isInteger, number: (v) => typeof v === "number",
  boolean: (v) => typeof v === "boolean", null: (v) => v === null };
function fits(value, rule, whole) {  // the keywords that the event schemas use
  if (rule === true || rule === undefined) return true;
  if (rule === false) return false;
  if (rule.$ref) return fits(value, whole.$defs[rule.$ref.split("/").pop()], whole);
  if (rule.anyOf && !rule.anyOf.some((each) => fits(value, each, whole))) return false;
  if (rule.type && ![rule.type].flat().some((type) => TYPES[type](value))) return false;
  if (rule.enum && !rule.enum.includes(value)) return false;
  if ("const" in rule && rule.const !== value) return false;
  if (typeof value === "string")
    return !(rule.pattern && !new RegExp(rule.pattern, "u").test(value)) && [...value].length >= (rule.minLength ?? 0);
  if (typeof value === "number") return value >= (rule.minimum ?? -Infinity) && value <= (rule.maximum ?? Infinity);
  if (Array.isArray(value)) return value.every((item) => fits(item, rule.items, whole));
  if (value === null || typeof value !== "object") return true;
  const names = Object.keys(value), has = (name) => Object.hasOwn(rule.properties ?? {}, name);
  const enough = names.length >= (rule.minProperties ?? 0);
  return enough && (rule.required ?? []).every((name) => Object.hasOwn(value, name)) &&
    names.every((name) => fits(value[name], has(name) ? rule.properties[name] : rule.additionalProperties, whole));
}

function old(text) {  // the envelope 1.0: hashes of payloads, one root, parents before, outcomes under calls
  const sessions = new Map();
  for (const [index, line] of text.slice(0, -1).split("\n").entries()) {
    const bad = (truth, what) => hold(truth, `line ${index + 1}: ${what}`);
    const [, payload, own] = OLD.exec(line) ?? [];
    bad(payload && hash(payload) === own, "payload_hash");
    const said = JSON.parse(Buffer.from(line, "latin1").toString());
    const names = "event_type,payload,payload_hash,schema_version,session_id,trace_id,ts";
    bad(Object.keys(said).join() === names, "header");
    if (!sessions.has(said.session_id)) sessions.set(said.session_id, new Map());
    const spans = sessions.get(said.session_id), { _span_id: span, _parent_span_id: parent } = said.payload;
    const type = ALIASES[said.event_type] ?? said.event_type;
    bad((spans.size === 0) === (type === "session.start"), "root");
    if (span === undefined) { spans.set(index, type); continue; }
    bad(!spans.has(span) && (parent === undefined ? spans.size === 0 : spans.has(parent)), "parent");
    bad(!type.startsWith("tool.") || !INTENTS[type] || spans.get(parent) === "tool.call", "outcome");
    spans.set(span, type);
  }
  hold(text.endsWith("\n"), "torn");
  return [];
}

function ledger(place) {  // all that a reader of one file can know, but for approvals, tasks and processes
  const spans = new Map(), closed = new Set();
  let shared, root, ended = false;
  const found = [], text = readFileSync(place, "latin1");
  if (text.startsWith('{"event_type":')) return old(text);
  for (const { index, header, payload, own, gone } of lines(text)) {
    const bad = (truth, what) => hold(truth, `line ${index + 1}: ${what}`);
    const match = HEADER.exec(header);
    bad(match, "header");
    const [, session, trace, seq, ts, written, span, parent] = match;
    const type = ALIASES[written] ?? written, isWorkspace = session.startsWith("ws-");
    shared ??= session + trace;
    bad(session + trace === shared && Number(seq) === index && written.length <= 64, "header");
    bad(!/^0+$/.test(span) && !spans.has(span), "span");
    bad(!Number.isNaN(Date.parse(ts)) && new Date(ts).toISOString() === ts, "ts");
    bad(parent === undefined ? index === 0 : spans.has(parent), "parent");
    bad((index === 0) === (type === (isWorkspace ? "ledger.created" : "session.start")), "root");
    root ??= span;
    if (INTENTS[type]) {
      bad(spans.get(parent) === INTENTS[type] && !closed.has(parent), "outcome");
      closed.add(parent);
    }
    bad(!ended || AFTER_END.test(type), "end");
    bad(type !== "session.end" || (parent === root && !isWorkspace), "end");
    ended ||= type === "session.end";
    spans.set(span, type);
    bad(payload.length <= 1048576, "size");
    let value = null;
    if (!gone) {
      try {
        const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(payload, "latin1"));
        value = JSON.parse(text);
        hold(canonical(value) === text, "canonical");
        sealed(value, dirname(place));
      } catch (problem) {
        bad(false, problem instanceof Fault ? problem.message : "json");
      }
      bad(schema(type) && fits(value, schema(type), schema(type)), "payload");
    }
    found.push({ type, value, own, session });
  }
  return found;
}

// --- trees and signed notes ------------------------------------------------------------------------------------------

const leafHash = (bytes) => sha(Buffer.of(0), bytes);
const nodeHash = (left, right) => sha(Buffer.of(1), left, right);
const hex = (text) => Buffer.from(text, "hex");
const EMPTY = sha(Buffer.alloc(0));
const half = (n) => { let k = 1; while (k * 2 < n) k *= 2; return k; };

class Growing {  // the peaks of a tree, the largest first
  constructor() { this.size = 0; this.peaks = []; }
  push(leaf) {
    for (let rest = this.size; rest % 2; rest = (rest - 1) / 2) leaf = nodeHash(this.peaks.pop(), leaf);
    this.peaks.push(leaf);
    this.size += 1;
  }
  get root() { return this.peaks.length ? this.peaks.reduceRight((right, left) => nodeHash(left, right)) : EMPTY; }
  get told() { return this.peaks.map((peak) => peak.toString("hex")).join(); }
}

function byPath(index, size, own, path) {  // the root that a path leads to, from the definition of PATH in RFC 9162
  if (size === 1) return path.length ? null : own;
  if (!path.length) return null;
  const k = half(size), other = path.at(-1), rest = path.slice(0, -1);
  const below = index < k ? byPath(index, k, own, rest) : byPath(index - k, size - k, own, rest);
  return below && (index < k ? nodeHash(below, other) : nodeHash(other, below));
}

function byProof(old, size, oldRoot, path, whole = true) {  // both roots that a proof leads to, from that of PROOF
  if (old === size && whole) return path.length ? null : [oldRoot, oldRoot];
  if (old === size) return path.length === 1 ? [path[0], path[0]] : null;
  if (!path.length) return null;
  const k = half(size), other = path.at(-1), rest = path.slice(0, -1);
  if (old <= k) { const b = byProof(old, k, oldRoot, rest, whole); return b && [b[0], nodeHash(b[1], other)]; }
  const b = byProof(old - k, size - k, oldRoot, rest, false);
  return b && b.map((each) => nodeHash(other, each));
}

function key(text, algorithm) {  // name+id+base64(algorithm || public key)
  const [, name, id, digits] = /^([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$/.exec(text) ?? [];
  const raw = Buffer.from(digits ?? "", "base64");
  hold(raw.length === 33 && raw[0] === algorithm, "key");
  hold(sha(`${name}\n`, raw).toString("hex").startsWith(id), "key id");
  const der = Buffer.concat([hex("302a300506032b6570032100"), raw.subarray(1)]);
  return { text, name, id, public: createPublicKey({ key: der, format: "der", type: "spki" }) };
}

function note(text) {
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
const signed = (made, by) => of(made, by).length > 0 &&
  of(made, by).every(({ value }) => checkSignature(null, Buffer.from(made.text), by.public, value));
const message = (time, text) => Buffer.from(`cosignature/v1\ntime ${time}\n${text}`);
const cosigned = (made, by) => of(made, by).length > 0 && of(made, by).every(({ value }) => value.length === 72 &&
  checkSignature(null, message(value.readBigUInt64BE(), made.text), by.public, value.subarray(8)));

function checkpoint(text) {
  const [, origin, size, root] = /^([^\n]+)\n(0|[1-9][0-9]*)\n([A-Za-z0-9+/]{43}=)\n$/.exec(text) ?? [];
  hold(origin && Buffer.from(root, "base64").toString("base64") === root, "checkpoint");
  return { origin, size: Number(size), root: Buffer.from(root, "base64") };
}

function statement(made) {  // a key of the log comes into force
  const [title, origin, own, previous, ...rest] = made.text.split("\n");
  hold(title === "deedbook log key v1" && rest.join() === "", "statement of a key");
  hold(signed(made, key(own, 1)), "a key did not sign for itself");
  return { origin, own, previous, made };
}

const leafData = ({ head, root, session_id, size }) => Buffer.from(canonical({ head, root, session_id, size }));
const kind = (text) => Buffer.from(text.split("+").slice(2).join("+"), "base64")[0];
const split = (keys) => [1, 4].map((each) => keys.filter((text) => kind(text) === each).map((text) => key(text, each)));

// --- the log ---------------------------------------------------------------------------------------------------------

function state(folder, keys) {
  const [believed, witnesses] = split(keys), files = new Map(), sessions = join(folder, "sessions");
  const own = ledger(join(folder, "workspace", ".events.jsonl"));
  for (const name of existsSync(sessions) ? readdirSync(sessions) : [])
    if (existsSync(join(sessions, name, ".events.jsonl")))
      files.set(name, ledger(join(sessions, name, ".events.jsonl")));
  files.set(own[0].session, own);
  const origin = `deedbook/${own[0].session}`, log = new Growing(), grown = new Map(), texts = new Map();
  let current = null, trusted = believed.length === 0, newest = null, seen = 0;
  for (const [seq, { type, value: said }] of own.entries()) {
    const bad = (truth, what) => hold(truth, `${type} at event ${seq}: ${what}`);
    if (type === "ledger.key") {
      const told = statement(note(said.signed));
      bad(told.origin === origin && told.own === said.key && told.previous === (said.previous ?? "-"), "statement");
      bad((current?.text ?? null) === said.previous, "previous");
      bad(!current || said.lost === true || signed(told.made, current), "not signed by the key before it");
      current = key(said.key, 1);
      bad(current.name === origin, "name");
    } else if (type === "ledger.leaf") {
      bad(said.index === log.size, "index");
      const lines = files.get(said.session_id), tree = grown.get(said.session_id) ?? new Growing();
      bad(lines && said.size > tree.size && said.size <= (lines === own ? seq : lines.length), "size");
      while (tree.size < said.size) tree.push(leafHash(hex(lines[tree.size].own)));
      grown.set(said.session_id, tree);
      bad(lines[said.size - 1].own === said.head, "head");
      bad(tree.root.toString("hex") === said.root && tree.told === said.peaks.join(), "root");
      log.push(leafHash(leafData(said)));
    } else if (type === "ledger.checkpoint") {
      const made = note(said.note), told = checkpoint(made.text);
      bad(said.origin === origin && told.origin === origin && told.size === said.size, "text");
      bad(said.size === log.size && said.size > (newest?.size ?? 0), "size");
      bad(log.root.toString("hex") === said.root && told.root.equals(log.root), "root");
      bad(log.told === said.peaks.join(), "peaks");
      bad(current && signed(made, current), "signature");
      trusted ||= believed.some((each) => each.text === current.text);
      newest = { size: said.size };
      texts.set(said.size, made.text);
    } else if (type === "ledger.witnessed") {
      const made = note(said.note), by = key(said.witness, 4);
      bad(texts.get(said.size) === made.text && cosigned(made, by), "cosignature");
      if (witnesses.some((each) => each.text === by.text)) seen = Math.max(seen, said.size);
    }
  }
  if (existsSync(join(folder, "checkpoint"))) {
    const kept = note(readFileSync(join(folder, "checkpoint"), "utf8")), told = checkpoint(kept.text);
    hold(texts.get(told.size) === kept.text, "ROLLED BACK: the newest signed note is not of this ledger");
  }
  hold(trusted, "no checkpoint is signed by a key that is believed");
  const by = seen ? `witnessed up to ${seen}` : "unwitnessed";
  return newest ? `sound: checkpoint ${newest.size}, ${by}` : "sound: no checkpoint";
}

// --- proofs ----------------------------------------------------------------------------------------------------------

function proof(told, keys) {
  const [believed] = split(keys);
  const stated = told.keys.map((text) => statement(note(text))), named = new Set(believed.map((each) => each.text));
  for (const { own, previous, made } of stated) {
    if (!believed.length || (named.has(previous) && signed(made, key(previous, 1)))) named.add(own);
  }
  for (const { own, previous } of stated.reverse()) if (named.has(own) && previous !== "-") named.add(previous);
  const notes = (told.kind === "inclusion" ? [told.note] : [told.old, told.new]).map(note);
  const points = notes.map((made) => checkpoint(made.text)), path = told.path.map(hex);
  hold(points.every((each) => each.origin === told.origin), "origin");
  hold(notes.every((made) => [...named].some((text) => signed(made, key(text, 1)))), "signature");
  if (told.kind === "consistency") {
    const [old, now] = points, both = old.size ? byProof(old.size, now.size, old.root, path) : [EMPTY, now.root];
    hold(old.size <= now.size && both?.[0].equals(old.root) && both[1].equals(now.root), "consistency");
    return;
  }
  const { leaf, event } = told, [log] = points;
  hold(told.kind === "inclusion" && leaf.index < log.size, "kind");
  hold(byPath(leaf.index, log.size, leafHash(leafData(leaf)), path)?.equals(log.root), "leaf");
  if (!event) return;
  const line = Buffer.from(event.line).toString("latin1"), [header, ...rest] = line.split(',"envelope_hash":"');
  const match = HEADER.exec(header), [, own, payload] = CLOSING.exec(rest.join(',"envelope_hash":"')) ?? [];
  hold(match && own === hash(header), "envelope_hash");
  const [, payloadHash] = ENDING.exec(header);
  hold(payloadHash === hash(payload) || payload === `{"$excised":"${payloadHash}"}`, "payload_hash");
  hold(match[1] === leaf.session_id && Number(match[3]) === event.seq && event.seq < leaf.size, "seq");
  const top = byPath(event.seq, leaf.size, leafHash(hex(own)), event.path.map(hex));
  hold(top?.equals(hex(leaf.root)), "event");
  hold(event.seq < leaf.size - 1 || own === leaf.head, "head");
}

// --- what is asked ---------------------------------------------------------------------------------------------------

function told(work, good) {
  try {
    return work() ?? good;
  } catch (problem) {
    return problem instanceof Fault ? problem.message : `unreadable: ${problem.message}`;
  }
}

const [mode, ...rest] = process.argv.slice(2);
if (mode === "--state") console.log(told(() => state(rest[0], rest.slice(1)), "sound"));
else if (mode === "--proof") {
  const isKey = (each) => /\+[0-9a-f]{8}\+/.test(each), keys = rest.filter(isKey);
  for (const file of rest.filter((each) => !isKey(each)))
    console.log(told(() => proof(JSON.parse(readFileSync(file, "utf8")), keys), "proved"));
}
else if (mode === "--hashes")
  for (const file of rest) console.log(told(() => { for (const _ of lines(readFileSync(file, "latin1"))); }, "sound"));
else for (const file of [mode, ...rest]) console.log(told(() => { ledger(file); }, "sound"));
