#!/bin/sh
# The official conformance suite against `deedbook mcp serve`: all its scenarios for servers.
# usage: server.sh NODE_MODULES   (the folder in which @modelcontextprotocol/conformance is installed)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
port=${PORT:-39871}
results=$(mktemp -d)
touch "$results/server.txt"
python "$here/workshop.py" "$port" 2>"$results/server.txt" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$results"' EXIT
until grep -q listening "$results/server.txt"; do kill -0 $server; sleep 0.2; done
cd "$results"
status=0
node "$1/@modelcontextprotocol/conformance/dist/index.js" server --suite all --url "http://127.0.0.1:$port/mcp" \
  --expected-failures "$here/server-misses.yaml" >suite.txt || status=$?
sed -n '/^=== SUMMARY/,$p' suite.txt
exit $status
