// A state folder: every ledger, what they say of each other, and the log with its checkpoints (docs/ledger-format.md).
import { existsSync, lstatSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { canonical, hash, hold, ledger } from "./ledger.mjs";
import { Growing, checkpoint, cosigned, hex, key, leafData, leafHash, note, signed } from "./notes.mjs";
import { split, statement } from "./notes.mjs";

const open = (...values) => values.every((value) => !JSON.stringify(value).includes('"$sealed"'));
const same = (one, other) => canonical(one) === canonical(other);

function each(own, sessions) {  // the workspace ledger, and all sessions
  const heads = new Set(), boots = new Map(), runs = new Map(), traces = new Map(), of = new Map(), spans = new Map();
  for (const [seq, event] of own.entries()) {
    const { type, value: said, span, parent } = event, above = spans.get(parent);
    const bad = (truth, what) => hold(truth, `${type} at event ${seq}: ${what}`);
    spans.set(span, event);
    if (type === "ledger.session") {
      const lines = sessions.get(said.session_id);
      bad(lines && lines.length >= said.events && lines[said.events - 1].own === said.head, "head");
      bad(above.type !== "system.run" || above.value.session_id === said.session_id, "run");
      heads.add(said.session_id);
    } else if (type === "system.boot") {
      bad(!boots.has(said.process_id), "boot");
      boots.set(said.process_id, { span, ended: false });
    } else if (type === "system.run" || type === "system.shutdown") {
      const boot = boots.get(said.process_id);
      bad(boot && boot.span === parent && !boot.ended, "process");
      boot.ended = type === "system.shutdown";
      if (boot.ended) continue;
      bad(!of.has(said.session_id) && (runs.get(said.run_id) ?? said.process_id) === said.process_id, "run");
      bad(!traces.has(said.trace_id), "trace");
      traces.set(said.trace_id, of.set(said.session_id, said.trace_id) && runs.set(said.run_id, said.process_id));
      bad((sessions.get(said.session_id)?.[0].trace ?? said.trace_id) === said.trace_id, "trace_id");
    }
  }
  approvals(own, own);
  tasks(own, sessions);
  const beginning = ["session.start", "approval.resumed", "hook.fired", "session.end"];
  for (const [name, lines] of sessions) {
    approvals(lines, own);
    hold(heads.has(name) || lines.every(({ type }) => beginning.includes(type)), `${name}: no ledger.session names it`);
  }
}

function approvals(lines, own) {  // who asked, what was shown, who signed, and what was done then
  const requests = new Map(), granted = new Map(), answers = new Map(), answered = new Set(), spent = new Set();
  const intents = { "tool.call": "tool_name", "flow.call": "flow" };
  for (const { type, value: said, span, parent } of lines) {
    const bad = (truth, what) => hold(truth, `${type} of ${said.approval}: ${what}`);
    const under = requests.get(parent);
    if (type === "approval.requested" && said && open(said)) {
      const { shown, ...rest } = said;
      bad(hash(Buffer.from(canonical(rest)).toString("latin1")) === shown, "shown");
      const call = canonical({ ability: said.name, args: said.args, principal: said.principal.id });
      bad(hash(Buffer.from(call).toString("latin1")) === said.call, "call");
      requests.set(span, said);
    } else if (/^approval\.(answered|granted|refused)$/.test(type) && said && open(said)) {
      if (!under) continue;
      const made = note(said.signed), [title, text, ...rest] = made.text.split("\n"), told = JSON.parse(text);
      bad(title === "deedbook approval v1" && rest.join() === "" && canonical(told) === text, "statement");
      bad(said.approval === under.approval, "approval");
      bad(["approval", "call", "charter", "shown", "expires"].every((name) => told[name] === under[name]), "request");
      const meant = { "approval.granted": "approve", "approval.refused": "deny" }[type] ?? said.answer;
      bad(told.answer === meant && told.approver === said.approver && told.approver !== under.principal.id, "answer");
      if (type === "approval.answered") {
        bad(!answered.has(parent), "answered before");
        answers.set(span, answered.add(parent) && said);
        continue;
      }
      bad(signed(made, key(said.key, 1)), "signature");
      const there = said.ledger === own[0].session && own[said.seq];
      bad(there && there.type === "approval.answered" && there.own === said.hash, "the answer stands elsewhere");
      bad(!there.value || !open(there.value) || there.value.signed === said.signed, "another answer stands there");
      if (meant === "approve") granted.set(span, { under, used: false });
    } else if (type === "approval.used" && said && open(said) && answers.has(parent)) {
      const { approval, answer } = answers.get(parent);
      bad(!spent.has(parent) && approval === said.approval && answer === "approve", "used");
      spent.add(parent);
    } else if (intents[type]) {
      hold(!under, `${type}: under the request itself`);
      const one = granted.get(parent);
      hold(!one?.used, `${type}: under an approval that was used`);
      if (!one || !said || !open(said)) continue;
      one.used = true;
      hold(said[intents[type]] === one.under.name && same(said.args, one.under.args), `${type}: not what was approved`);
    }
  }
}

function tasks(own, sessions) {  // made once, run one at a time, and both ledgers say the same
  const made = new Map(), told = ({ result: _, ...rest }) => rest;
  let gone = 0;  // what was taken out cannot be compared, and how tasks stand after it is not known
  for (const { type, value: said } of own.filter((event) => event.type.startsWith("task."))) {
    if (!said && ++gone) continue;
    const bad = (truth, what) => hold(truth, `${type} of ${said.task}: ${what}`), task = made.get(said.task);
    if (!gone) {
      bad((type === "task.created") === !task, "made once");
      if (!task) made.set(said.task, { runs: 0, state: "ready" });
      if (type === "task.started")
        bad(said.run === ++task.runs && !["running", "succeeded", "deleted", "unknown"].includes(task.state), "run");
      if (type === "task.ended") bad(["running", "waiting", "unknown"].includes(task.state), "not running");
      const next = { "task.started": "running", "task.ended": said.state, "task.deleted": "deleted" }[type];
      if (task) task.state = next ?? task.state;
    }
    const there = sessions.get(said.session)?.find((event) => event.span === said.span);
    bad(there && there.type === type && (!there.value || same(told(there.value), told(said))), "said otherwise there");
  }
  for (const [name, lines] of sessions)
    for (const { type, span, value } of lines.filter((event) => /^task\.(?!denied)/.test(event.type))) {
      const there = own.some((event) => event.type === type && event.value?.span === span);
      const missing = value && value.session === name && !there && gone-- <= 0;
      hold(!missing, `${type} of ${name}: the workspace ledger has it not`);
    }
}

function imported(folder, own) {  // old ledgers that were taken in: the same bytes, and no others
  const taken = own.filter(({ type, value }) => type === "ledger.imported" && value);
  const told = new Set(taken.map(({ value }) => value.sha256));
  const above = join(folder, "imported");
  for (const name of existsSync(above) ? readdirSync(above) : [])
    hold(told.has(name), `imported ${name}: nothing tells of it`);
  for (const name of told) {
    const place = join(above, name, "events.jsonl");
    hold(existsSync(place) && hash(readFileSync(place, "latin1")) === name, `imported ${name}: other bytes, or none`);
  }
}

// --- the log ---------------------------------------------------------------------------------------------------------

export function state(folder, keys) {
  const [believed, witnesses] = split(keys), files = new Map(), sessions = join(folder, "sessions");
  const home = join(folder, "workspace", ".events.jsonl");
  hold(lstatSync(home, { throwIfNoEntry: false }), "the workspace ledger is gone");
  const own = ledger(home);
  for (const name of existsSync(sessions) ? readdirSync(sessions) : []) {
    const place = join(sessions, name, ".events.jsonl"), there = lstatSync(place, { throwIfNoEntry: false });
    if (there?.size !== 0 && there) files.set(name, ledger(place));
    hold(!files.has(name) || files.get(name)[0].session === name, `${name}: another session`);
  }
  each(own, files);
  imported(folder, own);
  files.set(own[0].session, own);
  const origin = `deedbook/${own[0].session}`, other = believed.find((one) => one.name !== origin);
  hold(!other, `ROLLED BACK: the key of ${other?.name} names the log of another workspace ledger`);
  const log = new Growing(), grown = new Map(), texts = new Map();
  const vouched = new Set(believed.map((one) => one.text)), named = [];
  let current = null, newest = null, seen = 0;
  for (const [seq, { type, value: said }] of own.entries()) {
    const bad = (truth, what) => hold(truth, `${type} at event ${seq}: ${what}`);
    if (type === "ledger.key") {
      const told = statement(note(said.signed));
      bad(told.origin === origin && told.own === said.key && told.previous === (said.previous ?? "-"), "statement");
      bad((current?.text ?? null) === said.previous, "previous");
      bad(!current || said.lost === true || signed(told.made, current), "not signed by the key before it");
      current = key(said.key, 1);
      bad(current.name === origin, "name");
      named.push(current);
      if (!said.lost && vouched.has(said.previous)) vouched.add(said.key);
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
      newest = { size: said.size, by: current.text };
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
    hold(named.some((one) => signed(kept, one)), "checkpoint: signature");
  }
  hold(!believed.length || newest, "ROLLED BACK: there is no checkpoint, and a key of the log is believed");
  hold(!believed.length || vouched.has(newest.by), "nobody who is believed signed the newest checkpoint");
  const by = seen ? `witnessed up to ${seen}` : "unwitnessed";
  return newest ? `sound: checkpoint ${newest.size}, ${by}` : "sound: no checkpoint";
}
