#!/usr/bin/env bash
# Runs a step of `make test`, quietly: progress, failures in full, and the closing lines of the command.
#
#   Deploy/run-tests.sh NAME COMMAND [ARGUMENT…]
#
# The whole output of COMMAND is in .build/test-output/NAME.txt. The exit status is that of COMMAND.
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
name=$1
shift
directory=$(cd "$(dirname "$0")/.." && pwd)/.build/test-output
output=$directory/$name.txt
mkdir -p "$directory" && : >"$output" || exit 1

# On a terminal, one line that is rewritten each second; elsewhere, a line each minute.
progress() {
    local interval=60 started passed last
    [ -t 1 ] && interval=1
    # Waits without a child process, which would outlive this one.
    exec 7<> <(:)
    # Ends with the script, also when the script is killed.
    while ! read -r -t "$interval" -u 7 && kill -0 $$ 2>/dev/null; do
        # Tests that block their threads are reported as passed when all have ended.
        started=$(grep -cE '^◇ Test ("|[A-Za-z0-9_]+\()' "$output")
        passed=$(grep -cE '^✔ Test ("|[A-Za-z0-9_]+\()' "$output")
        last=$(tail -n 1 "$output" | tr -d '\r' | cut -c 1-60)
        grep -q '^◇ Test run started' "$output" && last="$started tests started, $passed tests passed"
        if [ -t 1 ]; then printf '\r\033[K%s: %s' "$name" "$last"; else printf '%s: %s\n' "$name" "$last"; fi
    done
}

progress &
watcher=$!
trap 'kill "$watcher" 2>/dev/null' EXIT
"$@" >"$output" 2>&1
status=$?
kill "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
[ -t 1 ] && printf '\r\033[K'

# Prints the runner's last lines: its summary, if the run got that far.
closing_lines() {
    awk '
        / Test run with / { count = 0 }
        { last[count++ % 5] = $0 }
        END { for (i = count > 5 ? count - 5 : 0; i < count; i++) print last[i % 5] }
    ' "$output"
}

if [ "$status" -eq 0 ]; then
    # A build that succeeded has nothing to report.
    if grep -q ' Test run with ' "$output"; then closing_lines; fi
    exit 0
fi

# Prints each issue up to the next mark of the runner, at most 12 lines, and the reports of crashes. The issues' first
# lines are repeated at the end, because a reader may see the end of the output only.
echo
echo "Failures (whole output: $output):"
awk -v most=60 -v each=12 '
    / recorded an issue / { names[issues++] = substr($0, 1, 300); shown = each; show(); next }
    /Fatal error: / || /Program crashed: / { names[issues++] = substr($0, 1, 300); shown = 0; show(); next }
    / error: / { errors += 1; shown = each; show(); next }
    /^(◇|✔|✘|➜)/ || /^error: / { shown = 0 }
    shown > 0 { show() }
    function show() { lines += 1; shown -= 1; if (lines <= most) print substr($0, 1, 600) }
    END {
        if (issues + errors == 0) print "no test recorded an issue"
        if (lines > most) print "… and " lines - most " more lines"
        print "Issues: " issues + 0
        for (i = 0; i < issues && i < 10; i++) print names[i]
    }
' "$output"
closing_lines
exit "$status"
