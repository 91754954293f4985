# The pages agree with the tree: links lead somewhere, README lists every page, every subcommand
# that the pages name exists.
set -u
R=${ROLLTOP:?}
cd "$ROLLTOP_SOURCE" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
for page in README.md docs/*.md; do
    for link in $(grep -oE '\]\([^)# ]+' "$page" | sed 's/^](//' | grep -v '^https*:'); do
        [ -e "$(dirname "$page")/$link" ] || fail "$page links to $link, which is not there"
    done
done
for page in docs/*.md; do
    grep -qF "($page)" README.md || fail "README.md does not list $page"
done
for name in $(sed -n 's/^all="\(\$all \)\{0,1\}\(.*\)"$/\2/p' tests/bench/run.sh); do
    [ "$(grep -c "\`$name\`\|^ .*#.* $name\( \|$\)" docs/benchmarks.md)" -ge 2 ] ||
        fail "docs/benchmarks.md does not list and explain the bench $name"
done
subs=" $("$R" --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p' | tr '\n' ' ')"
for word in $(grep -ohE '`(build/release/)?rolltop [a-z]+' README.md docs/*.md |
    sed 's/.* //' | sort -u); do
    case "$subs" in
    *" $word "*) ;;
    *) fail "a page names rolltop $word, which is no subcommand" ;;
    esac
done
exit $failed
