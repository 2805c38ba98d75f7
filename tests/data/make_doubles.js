// The ECMAScript oracle for numbers, with Node's own JSON.stringify.
//
//   node make_doubles.js > doubles.txt    the committed table: the 64 bits in hex, a space, the spelling
//   node make_doubles.js - < doubles.bin  big-endian doubles from standard input, as one JSON array
"use strict";

const view = new DataView(new ArrayBuffer(8));
const bits = (number) => (view.setFloat64(0, number), view.getBigUint64(0));
const number = (pattern) => (view.setBigUint64(0, BigInt.asUintN(64, pattern)), view.getFloat64(0));

// xorshift64*, so that the table is the same on every run
let state = 0x9e3779b97f4a7c15n;
function random() {
  state ^= state >> 12n;
  state = BigInt.asUintN(64, state ^ (state << 25n));
  state ^= state >> 27n;
  return BigInt.asUintN(64, state * 0x2545f4914f6cdd1dn);
}

function* around(value, ulps) {
  for (let step = -ulps; step <= ulps; step += 1n) yield number(bits(value) + step);
}

function* table() {
  yield* [0, -0];
  yield* [Number.MAX_VALUE, -Number.MAX_VALUE, Number.EPSILON, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];
  for (let step = 1n; step <= 40n; step += 1n) yield number(step); // the smallest subnormals
  yield* around(2.2250738585072014e-308, 20n); // where subnormals end
  for (let power = -323; power <= 308; power += 1) yield* around(Number(`1e${power}`), 1n);
  for (let power = -1074; power <= 1023; power += 2) yield 2 ** power;
  const thresholds = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e15, 2 ** 53, 1e16, 2 ** 63, 2 ** 64, 1e20, 1e21, 1e22];
  for (const threshold of thresholds) for (const sign of [1, -1]) yield* around(sign * threshold, 12n);
  for (let whole = 0; whole < 60; whole += 1) yield whole;
  for (let cents = 1; cents < 500; cents += 7) yield cents / 100;
  for (let exponent = 0n; exponent < 2047n; exponent += 1n) yield number((exponent << 52n) | (random() >> 12n));
}

function print() {
  const patterns = new Set(Array.from(table(), bits));
  for (const pattern of patterns) {
    process.stdout.write(`${pattern.toString(16).padStart(16, "0")} ${JSON.stringify(number(pattern))}\n`);
  }
}

function answer() {
  const raw = require("fs").readFileSync(0);
  const doubles = Array.from({ length: raw.length / 8 }, (_, index) => raw.readDoubleBE(index * 8));
  process.stdout.write(JSON.stringify(doubles));
}

if (process.argv[2] === "-") answer();
else print();
