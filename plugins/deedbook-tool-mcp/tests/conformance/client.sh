#!/bin/sh
# The official conformance suite against MCP servers as Deedbook uses them: all its scenarios for clients.
# usage: client.sh NODE_MODULES   (the folder in which @modelcontextprotocol/conformance is installed)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
cd "$results"
status=0
node "$1/@modelcontextprotocol/conformance/dist/index.js" client --suite all --command "python $here/client.py" \
  --timeout 60000 --expected-failures "$here/client-misses.yaml" >suite.txt 2>&1 || status=$?
sed -n '/SUITE SUMMARY/,$p' suite.txt
exit $status
