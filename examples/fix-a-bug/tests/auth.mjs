// Runs with every Node: auth.ts has no type annotations, so that its text is JavaScript as it is.
import { readFile } from "node:fs/promises";

const source = await readFile("src/auth.ts", "utf8");
const { isSignedIn, mayActAs } = await import(`data:text/javascript,${encodeURIComponent(source)}`);
const ada = { user: "ada", roles: ["editor"], expires: 1000 };
const nobody = { user: "", roles: ["editor"], expires: 1000 };
const results = {
  "a person is signed in": isSignedIn(ada, 999),
  "an expired session is not signed in": !isSignedIn(ada, 1000),
  "a session without a user is not signed in": !isSignedIn(nobody, 999),
  "a person has a role": mayActAs(ada, "editor", 999),
  "a person does not have another role": !mayActAs(ada, "admin", 999),
  "an expired session has no role": !mayActAs(ada, "editor", 1000),
};
for (const [name, holds] of Object.entries(results)) console.log(`${holds ? "ok    " : "FAILED"}  ${name}`);
process.exitCode = Object.values(results).every(Boolean) ? 0 : 1;
