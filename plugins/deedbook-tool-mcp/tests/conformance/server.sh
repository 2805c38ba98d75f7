#!/bin/sh
# The official conformance suite for servers, all its scenarios, against one of three servers:
#   abilities  `deedbook mcp serve` with abilities as tools (the default)
#   direct     the server that the suite expects, on the official SDK, without Deedbook
#   upstream   the gateway, `deedbook mcp serve --upstream`, in front of that server in a process of its own
# usage: server.sh NODE_MODULES [abilities|direct|upstream]
#        NODE_MODULES is the folder in which @modelcontextprotocol/conformance is installed
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${2:-abilities}
port=${PORT:-39871}
behind=$((port + 1))
results=$(mktemp -d)
pids=
trap 'for each in $pids; do kill $each 2>/dev/null || true; wait $each || true; done; rm -rf "$results"' EXIT

begin() {  # begin NAME COMMAND...: start a server and wait until it listens
  log=$results/$1.txt
  shift
  : >"$log"
  "$@" 2>"$log" &
  pids="$! $pids"
  until grep -q listening "$log"; do kill -0 $! || { cat "$log" >&2; exit 1; }; sleep 0.2; done
}

case $what in
  abilities) begin server python "$here/workshop.py" "$port" ;;
  direct) begin server python "$here/expected.py" "$port" ;;
  upstream)
    begin behind python "$here/expected.py" "$behind"
    begin server python "$here/gateway.py" "$port" "http://127.0.0.1:$behind/mcp" "$results/workspace" ;;
  *) echo "server.sh: $what is none of abilities, direct, upstream" >&2; exit 2 ;;
esac
cd "$results"
status=0
node "$1/@modelcontextprotocol/conformance/dist/index.js" server --suite all --url "http://127.0.0.1:$port/mcp" \
  --expected-failures "$here/$what-misses.yaml" >suite.txt || status=$?
sed -n '/^=== SUMMARY/,$p' suite.txt
exit $status
