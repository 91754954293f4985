# Lines that tests ran since the build, by folder: sh tests/coverage.sh [BUILD]. Delete the .gcda files
# to count anew. Processes that end by a signal count nothing.
cd "$(dirname "$0")/.." || exit 2
build=${1:-build/coverage}
find "$build" -name '*.gcda' ! -path '*/tests/*' -exec gcov -n {} + 2>/dev/null | awk '
    /^File / { file = $0; gsub(/^File .*\/(core|store|tui)\//, "&", file)
        sub(/\x27$/, "", file); keep = match(file, /\/(core\/[a-z]+|store|tui)\/[^\/]*\.c$/)
        folder = substr(file, RSTART + 1); sub(/\/[^\/]*$/, "", folder) }
    /^Lines executed:/ && keep { split($0, part, /[:% ]+/); total[folder] += part[5]
        ran[folder] += part[3] * part[5] / 100; all += part[5]; allran += part[3] * part[5] / 100
        keep = 0 }
    END { if (all == 0) { print "no counts under '"$build"': run its tests first"; exit 1 }
        for (f in total) printf "%-16s %6d lines  %5.1f %%\n", f, total[f], 100 * ran[f] / total[f] | "sort"
        close("sort"); printf "%-16s %6d lines  %5.1f %%\n", "all", all, 100 * allran / all }'
