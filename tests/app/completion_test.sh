# Completion scripts are sound for their shells and complete what a person types; the manual page
# is sound for man. Shells that are not installed are left out.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
# Each script knows each subcommand and every flag that --help lists.
subs=$("$R" --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p')
for sub in $subs; do
    "$R" "$sub" --help | sed -n -e '/^Accepted/q' -e 's/^  --\([a-z0-9-]*\).*/\1/p'
done | sort -u >"$T/flags"
[ "$(wc -l <"$T/flags")" -gt 100 ] || fail "the helps list $(wc -l <"$T/flags") flags"
for shell in bash zsh fish man; do
    "$R" completion $shell >"$T/$shell" || fail "completion $shell"
    for sub in $subs; do
        grep -q "$sub" "$T/$shell" || fail "$shell: $sub is missing"
    done
    sed -e 's/\\-/-/g' -e 's/ -l / --/g' "$T/$shell" | grep -oE -e '--[a-z0-9-]+' |
        sed 's/^--//' | sort -u >"$T/known"
    missing=$(comm -23 "$T/flags" "$T/known" | tr '\n' ' ')
    [ -z "$missing" ] || fail "$shell: flags are missing: $missing"
done
"$R" completion tcsh >"$T/out" 2>&1 && fail "completion tcsh is no error"
grep -q 'there are bash, zsh, fish' "$T/out" || fail "completion tcsh: $(cat "$T/out")"

if command -v bash >/dev/null 2>&1; then
    bash -n "$T/bash" || fail "bash: syntax"
    cat >"$T/ask" <<'END'
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_rolltop
echo "${COMPREPLY[*]-}"
END
    asks() { # WANTED WORDS…
        wanted=$1
        shift
        got=$(cd "$T" && bash "$T/ask" "$T/bash" "$@")
        [ "$got" = "$wanted" ] || fail "bash: \"$*\" gives \"$got\", wanted \"$wanted\""
    }
    mkdir "$T/folder" && : >"$T/run 1.db"
    asks "demo" rolltop de
    asks "run 1.db" rolltop snapshot run
    asks "--batch" rolltop top --b
    asks "--engines --engine-cmd --engine-threads --engine-faults" rolltop demo --engi
    asks "--rollout-temperature" rolltop run --rollout-te
    asks "run 1.db" rolltop replay run
    asks "run 1.db" rolltop demo --log r
    asks "folder" rolltop run --hf-checkpoint f
    asks "steps" rolltop query x.db st
    asks "pause" rolltop ctl pa
    asks "snapshot" rolltop log sn
    asks "run 1.db" rolltop log check run
    asks "check keys alerts" rolltop config ""
    asks "run 1.db" rolltop config check r
    asks "roles" rolltop theme ro
    asks "verify" rolltop policy v
    asks "--alert-rules" rolltop demo --al
    asks "--update-budget" rolltop run --update-b
    asks "--keep-age" rolltop log trim "run 1.db" --ke
    asks "" rolltop run --lr ""
fi
if command -v zsh >/dev/null 2>&1; then
    zsh -n "$T/zsh" || fail "zsh: syntax"
    known=$(zsh -f -c "autoload -Uz compinit; compinit -D -u; . '$T/zsh'; echo \$_comps[rolltop]")
    [ "$known" = _rolltop ] || fail "zsh: sourced, it does not register itself: $known"
fi
if command -v fish >/dev/null 2>&1; then
    fish -n "$T/fish" || fail "fish: syntax"
    got=$(HOME=$T fish --no-config -c "source '$T/fish'; complete -C 'rolltop ctl pa'")
    [ "$got" = pause ] || fail "fish: \"rolltop ctl pa\" gives \"$got\""
fi
if command -v man >/dev/null 2>&1 && command -v groff >/dev/null 2>&1; then
    sh "$ROLLTOP_SOURCE/docs/write.sh" "$R" "$ROLLTOP_SOURCE/docs/rolltop.1" "$T"
    # What the demo takes over from `run` is explained once.
    [ "$(grep -c '^.fB.-.-disk.-wait' "$T/rolltop.1")" -eq 1 ] ||
        fail "manual page: --disk-wait is not explained once"
    man --warnings -E UTF-8 -l "$T/rolltop.1" 2>"$T/warnings" >/dev/null
    [ -s "$T/warnings" ] && fail "manual page: $(head -n 3 "$T/warnings")"
    chapters=$(sed -n 's/^\.SH //p' "$T/rolltop.1" | tail -n 7 | tr '\n' ,)
    [ "$chapters" = "SUBCOMMANDS,FLAGS,EXIT STATUS,ENVIRONMENT,FILES,EXAMPLES,SEE ALSO," ] ||
        fail "manual page: its chapters end with $chapters"
fi
exit $failed
