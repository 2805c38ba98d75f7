// A stock MCP client at work on a git repository: @modelcontextprotocol/sdk, and nothing of Deedbook.
// usage: node work.mjs [NODE_MODULES]   (the folder in which the SDK is installed)

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const sdk = pathToFileURL(resolve(process.argv[2] ?? "node_modules", "@modelcontextprotocol/sdk/dist/esm/client")).href;
const { Client } = await import(`${sdk}/index.js`);
const { StdioClientTransport } = await import(`${sdk}/stdio.js`);

const args = ["mcp", "serve", "--client", "desk", "--wait", "60"];
const client = new Client({ name: "work", version: "1.0.0" });
await client.connect(new StdioClientTransport({ command: "deedbook", args, env: process.env }));
await client.listTools();

const work = [
  ["git_status", {}],
  ["git_add", { files: ["notes.txt"] }],
  ["git_reset", {}],
  ["git_commit", { message: "Notes" }],
  ["git_log", { max_count: 1 }],
];
const say = (name, text) => console.log(`${name.padEnd(10)}  ${text.split(/\s+/).join(" ").trim()}`);
for (const [name, more] of work) {
  const call = { name: `git__${name}`, arguments: { repo_path: "repo", ...more } };
  const result = await client.callTool(call, undefined, { onprogress: ({ message }) => say("...", message ?? "") });
  say(name, result.content.map((block) => block.text).join(" "));
}
await client.close();
