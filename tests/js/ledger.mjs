// One ledger: hashes, chain, template, canonical form, sealed values, structure, payloads (docs/ledger-format.md).
import { createHash } from "node:crypto";
import { existsSync, lstatSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

export const sha = (...bytes) => bytes.reduce((h, b) => h.update(b), createHash("sha256")).digest();
export const hash = (bytes) => sha(Buffer.from(bytes, "latin1")).toString("hex");
const OPENING = /^\{"schema_version":"1\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})"/;
export const ENDING = /"payload_hash":"([0-9a-f]{64})","prev_envelope_hash":"([0-9a-f]{64})"$/;
export const CLOSING = /^([0-9a-f]{64})","payload":(\{[^]*)\}$/;
export const HEADER = new RegExp(
  '^\\{"schema_version":"1\\.1","session_id":"([A-Za-z0-9][A-Za-z0-9_-]{0,127})","trace_id":"([0-9a-f]{32})"' +
  ',"seq":(0|[1-9][0-9]{0,15}),"ts":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z)"' +
  ',"event_type":"([a-z][a-z0-9_]*(?:\\.[a-z][a-z0-9_]*)+)","actor":"(?:runtime|user|agent|tool|policy|system)"' +
  ',"principal":(?:null|"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}"),"span_id":"([0-9a-f]{16})"' +
  ',"parent_span_id":(?:null|"([0-9a-f]{16})"),"payload_hash":"[0-9a-f]{64}","prev_envelope_hash":"[0-9a-f]{64}"$');
const OLD = "event_type,payload,payload_hash,schema_version,session_id,trace_id,ts";
const OLDER = "actor,id,parent_id,payload,schema_version,session_id,ts,type";
const OLD_TS = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d[.]\d{3}Z$/;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*/g;
const KEPT = /^(ledger|session|system|payload)\.|^approval\.(granted|answered)$/;  // never excised
const AFTER_END = /^ledger\.|^(event\.amended|payload\.erased)$/;
const INTENTS = { "tool.result": "tool.call", "tool.error": "tool.call", "llm.response": "llm.request",
  "llm.error": "llm.request", "flow.result": "flow.call", "flow.error": "flow.call", "memory.result": "memory.call",
  "memory.error": "memory.call" };
const ALIASES = { "tool.invoke": "tool.call", "session.close": "session.end" };
const SCHEMAS = new URL("../../schemas/", import.meta.url);
export class Fault extends Error {}
export const hold = (truth, why) => { if (!truth) throw new Fault(why); };

// --- ledgers ---------------------------------------------------------------------------------------------------------

export function* lines(text) {  // hashes and chain, line by line
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

export function canonical(value, depth = 0, count = { values: 0 }) {  // RFC 8785, and the limits of the format
  hold(depth <= 72 && ++count.values <= 600000, "canonical");
  if (typeof value === "number")
    hold(!/^-?[0-9]+$/.test(String(value)) || Math.abs(value) <= Number.MAX_SAFE_INTEGER, "canonical");
  if (typeof value === "string") hold(value.isWellFormed(), "json");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, depth + 1, count)).join(",")}]`;
  const member = (name) => `${canonical(name, depth + 1, { values: 0 })}:${canonical(value[name], depth + 1, count)}`;
  return `{${Object.keys(value).sort().map(member).join(",")}}`;
}

function regular(place) {  // a file with one name, and no link to one
  const found = lstatSync(place);
  hold(found.isFile() && found.nlink === 1, `${place}: refused`);
  return readFileSync(place);
}

function sealed(value, folder) {  // every commitment: a file that is there is what was committed to
  if (value === null || typeof value !== "object") return;
  if (!Array.isArray(value) && Object.hasOwn(value, "$sealed")) {
    const { $sealed: digest, size } = value;
    hold(Object.keys(value).length === 2 && /^[0-9a-f]{64}$/.test(digest) && Number.isInteger(size), "sealed");
    const place = join(folder, "sealed", digest);
    const raw = lstatSync(place, { throwIfNoEntry: false }) ? regular(place) : null;
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

function repr(token) {  // a number as Python spells it
  if (/^-?[0-9]+$/.test(token)) return token === "-0" ? "0" : token;
  const value = Number(token), [digits, power] = value.toExponential().split("e");
  const far = Number(power) < -4 || Number(power) >= 16;
  if (far) return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  const plain = String(Math.abs(value));
  return `${Object.is(value, -0) || value < 0 ? "-" : ""}${plain.includes(".") ? plain : `${plain}.0`}`;
}

function python(value, numbers) {  // as json.dumps spells it, sorted and compact; numbers come from the text, in order
  if (typeof value === "number") return repr(numbers.shift() ?? "");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => python(item, numbers)).join(",")}]`;
  const names = Object.keys(value).sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
  return `{${names.map((name) => `${JSON.stringify(name)}:${python(value[name], numbers)}`).join(",")}}`;
}

function old(bytes) {  // the envelope 1.0: spelling and hash of each line, and a session's structure
  const sessions = new Map(), all = bytes.split("\n");
  hold(all.pop() === "", "torn");
  for (const [index, line] of all.entries()) {
    const bad = (truth, what) => hold(truth, `line ${index + 1}: ${what}`);
    let said, text;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(line, "latin1"));
      said = JSON.parse(text);
    } catch { bad(false, "json"); }
    const { payload, ...header } = said ?? {};
    bad(TYPES.object(payload), "json");
    bad(Object.keys(said).sort().join() === OLD && header.schema_version === "1.0", "header");
    bad(Object.values(header).every((value) => typeof value === "string" && value), "header");
    const numbers = (part) => (part.match(TOKENS) ?? []).filter((token) => token[0] !== '"');
    bad(python(said, numbers(text)) === text, "canonical");
    const own = sha(python(payload, numbers(text))).toString("hex");
    bad(own === header.payload_hash, "payload_hash");
    bad(OLD_TS.test(header.ts), "ts");
    if (!sessions.has(header.session_id)) sessions.set(header.session_id, new Map());
    const spans = sessions.get(header.session_id), { _span_id: span, _parent_span_id: parent = null } = payload;
    if (typeof span !== "string" || !span || (parent !== null && typeof parent !== "string")) continue;
    const type = header.event_type;
    if (parent === null) bad(!spans.root && type === "session.start", "root");
    else bad(spans.has(parent), "parent");
    bad(parent === null || !/^tool[.](result|error)$/.test(type) || spans.get(parent) === "tool.call", "outcome");
    bad(!spans.has(span), "span");
    spans.root ||= parent === null;
    spans.set(span, type);
  }
}

const NOTHING = "nothing to verify: no line has a hash";

function older(bytes) {  // the events of seed 000, which have no hashes: ids, parents, one session
  const types = new Map(), all = bytes.split("\n");
  hold(all.pop() === "", "torn");
  let session;
  for (const [index, line] of all.entries()) {
    const bad = (truth, what) => hold(truth, `line ${index + 1}: ${what}`);
    let said;
    try {
      said = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(line, "latin1")));
    } catch { bad(false, "json"); }
    bad(TYPES.object(said), "json");
    const { id, session_id, type, actor, parent_id: parent = null, ts, schema_version } = said;
    bad(Object.keys({ parent_id: null, ...said }).sort().join() === OLDER && schema_version === "v1", "header");
    bad([id, session_id, type, actor].every((value) => typeof value === "string" && value), "header");
    bad(parent === null || typeof parent === "string", "header");
    bad(typeof ts === "number" ? Math.abs(ts) < 6e10 : typeof ts === "string" && !Number.isNaN(Date.parse(ts)), "ts");
    session ??= session_id;
    bad(session === session_id && !types.has(id) && (parent === null || types.has(parent)), "id");
    bad(parent === null || type !== "tool.result" || types.get(parent) === "tool.invoke", "outcome");
    types.set(id, type);
  }
  hold(false, NOTHING);
}

export function ledger(place) {  // all that a reader of one file can know, but for approvals, tasks and processes
  const spans = new Map(), closed = new Set();
  let shared, root, ended = false;
  const found = [], text = regular(place).toString("latin1");
  if (text.startsWith('{"event_type":')) return old(text) ?? [];
  if (/^\s*\{\s*"id"\s*:/.test(text)) return older(text) ?? [];
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
    found.push({ type, value, own, session, trace, span, parent });
  }
  return found;
}
