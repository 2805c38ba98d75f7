#!/bin/sh
# From the queue to a merged commit. Call it in a fresh copy of this folder; README.md says what has to be installed.
set -eu
if [ -e repos ]; then
    echo "this folder was used before; make a fresh copy of examples/swe" >&2
    exit 2
fi
export XDG_CONFIG_HOME="$PWD/.config" # the key of Ada, who answers below, stays in this folder

echo "--- a repository with one commit, and a person who can answer"
mkdir -p repos
cp -r textkit repos/textkit
git -C repos/textkit init -q -b main
git -C repos/textkit add .
git -C repos/textkit -c user.name=Ada -c user.email=ada@example.org commit -q -m "Begin with four tests"
deedbook keys new ada --out .system/ada.pub

echo "--- the queue"
deedbook swe add "Slugs lose digits" --id task-2026-001 --file request.md --project textkit --tags python,text,bug

echo "--- the run, until a person is needed"
status=0
deedbook swe run || status=$?
[ "$status" = 3 ] # it waits for a person

echo "--- Ada answers, perhaps a day later"
deedbook approvals list
deedbook approvals approve "$(deedbook approvals list | cut -d' ' -f1)" --as ada

echo "--- another process goes on"
deedbook swe resume task-2026-001
