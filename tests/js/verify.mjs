// Checks Deedbook's ledgers, logs and proofs, as docs/ledger-format.md and docs/proofs.md describe them.
//   node verify.mjs FILE...                          each ledger: hashes, template, canonical form, structure, payloads
//   node verify.mjs --hashes FILE...                 hashes and chain alone
//   node verify.mjs --state DIR... [KEY...]          each state folder: its ledgers, held together, and the log
//   node verify.mjs --proof FILE... [KEY...]         each proof; a KEY is of a log or a witness, and is believed
// One line of output for each: "sound" or "proved", or where it fails and at what; then the exit status is 4.
// What a charter declares (types of plugins, keys of approvers) is not judged here, nor whether what is torn or
// interrupted will be mended.
import { readFileSync } from "node:fs";
import { Fault, ledger, lines } from "./ledger.mjs";
import { proof } from "./proof.mjs";
import { state } from "./state.mjs";

function told(work, good) {
  try {
    return work() ?? good;
  } catch (problem) {
    process.exitCode = 4;
    return problem instanceof Fault ? problem.message : `unreadable: ${problem.message}`;
  }
}

const [mode, ...rest] = process.argv.slice(2);
const isKey = (text) => /\+[0-9a-f]{8}\+/.test(text);
const keys = rest.filter(isKey), places = rest.filter((one) => !isKey(one));
if (mode === "--state") for (const folder of places) console.log(told(() => state(folder, keys), "sound"));
else if (mode === "--proof")
  for (const file of places) console.log(told(() => proof(JSON.parse(readFileSync(file, "utf8")), keys), "proved"));
else if (mode === "--hashes")
  for (const file of rest) console.log(told(() => { for (const _ of lines(readFileSync(file, "latin1"))); }, "sound"));
else for (const file of [mode, ...rest]) console.log(told(() => { ledger(file); }, "sound"));
