# The pages agree with the tree: links lead somewhere, README lists every page, every subcommand
# and flag that the pages name exists.
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
for page in README.md docs/*.md; do
    for link in $(grep -oE '\]\([^) :]*#[^) ]+' "$page" | sed 's/^](//'); do
        target=$page
        [ -z "${link%%#*}" ] || target=$(dirname "$page")/${link%%#*}
        sed -n 's/^##* //p' "$target" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g' |
            grep -qxF -e "${link#*#}" || fail "$page links to $link, and no heading is so"
    done
done
known=" $({ "$R" completion bash && "$R" run --help && ./setup help; } |
    grep -oE -e '--[a-z][a-z0-9-]*' | sort -u | tr '\n' ' ')"
for page in README.md docs/*.md; do
    for flag in $(grep -oE '`--[a-z][a-z0-9-]*' "$page" | tr -d '`' | sort -u); do
        case "$flag$known" in
        --sglang-* | *" $flag "*) ;; # the former are whatever SGLang has
        *) fail "$page names $flag, which nothing here knows" ;;
        esac
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
