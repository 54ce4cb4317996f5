#!/usr/bin/env bash
# Runs tests. After a failure, repeats the failed tests at the end, because they may be thousands of lines above.
#
#   Deploy/run-tests.sh NAME COMMAND [ARGUMENT…]
#
# The output of COMMAND is kept in .build/test-output/NAME.txt. The exit status is that of COMMAND.
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
name=$1
shift
directory=$(cd "$(dirname "$0")/.." && pwd)/.build/test-output
output=$directory/$name.txt
mkdir -p "$directory" || exit 1

"$@" 2>&1 | tee "$output"
status=${PIPESTATUS[0]}
if [ "$status" -eq 0 ]; then
    exit 0
fi

# Prints each issue up to the next mark of the runner, at most 12 lines, and the reports of crashes. The issues' first
# lines are repeated at the end, because a reader may see the end of the output only.
echo
echo "Failures (whole output: $output):"
awk -v most=60 -v each=12 '
    / recorded an issue / { names[issues++] = substr($0, 1, 300); shown = each; show(); next }
    /Fatal error: / || /Program crashed: / { names[issues++] = substr($0, 1, 300); shown = 0; show(); next }
    /^(◇|✔|✘|➜)/ || /^error: / { shown = 0 }
    shown > 0 { show() }
    function show() { lines += 1; shown -= 1; if (lines <= most) print substr($0, 1, 600) }
    END {
        if (issues == 0) print "no test recorded an issue"
        if (lines > most) print "… and " lines - most " more lines"
        print "Issues: " issues + 0
        for (i = 0; i < issues && i < 10; i++) print names[i]
    }
' "$output"
# Prints the runner's last lines: its summary, if the run got that far.
awk '
    / Test run with / { count = 0 }
    { last[count++ % 5] = $0 }
    END { for (i = count > 5 ? count - 5 : 0; i < count; i++) print last[i % 5] }
' "$output"
exit "$status"
