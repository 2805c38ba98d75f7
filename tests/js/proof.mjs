// A proof of one event, or of the log's growth (docs/proofs.md).
import { CLOSING, ENDING, HEADER, hash, hold } from "./ledger.mjs";
import { EMPTY, byPath, byProof, checkpoint, hex, key, note, signed, split, statement } from "./notes.mjs";
import { leafData, leafHash } from "./notes.mjs";

export function proof(told, keys) {
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
