#!/usr/bin/env bash
# step.sh LABEL NAME COMMAND...: runs the command quietly and says how it went in one line.
# Its output goes to build/log/NAME.log; when it fails, the end of that is shown.
set -uo pipefail
label=$1 name=$2
shift 2
log=build/log/$name.log
mkdir -p build/log || exit 1
# Ctrl-C needs no explanation by the end of a log.
trap 'echo "interrupted"; exit 130' INT
printf '%s … ' "$label"
start=$SECONDS
"$@" >"$log" 2>&1
status=$?
took=$((SECONDS - start))
if [ $status -eq 0 ]; then
    [ $took -ge 1 ] && echo "done ($took s)" || echo "done"
    exit 0
fi
echo "failed ($took s)"
tail -n 40 "$log" >&2
echo "$label failed with status $status; all of its output: $log" >&2
exit "$status"
