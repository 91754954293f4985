# ./setup on a machine that lacks packages: it says what is missing and stops with status 2, or
# installs exactly that. The package tools are stand-ins that write down how they were called.
set -u
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    cat "$T/out"
    failed=1
}
mkdir -p "$T/a b" "$T/bin"
cp "$ROLLTOP_SOURCE/setup" "$T/a b/setup"
tool() { # NAME, then its script on stdin
    { echo "#!/bin/sh"; cat; } >"$T/bin/$1"
    chmod +x "$T/bin/$1"
}
setup() { # STATUS ARGUMENTS…
    wanted=$1
    shift
    (cd / && PATH="$T/bin:$PATH" "$T/a b/setup" "$@") >"$T/out" 2>&1 </dev/null
    got=$?
    [ $got -eq "$wanted" ] || fail "setup $*: status $got, wanted $wanted"
}
says() {
    grep -qF -- "$1" "$T/out" || fail "does not say: $1"
}
setup 2
says "usage: ./setup COMMAND"
setup 0 --help
says "--preset"
setup 2 tset
says 'unknown command "tset"'
setup 2 build --preset relase
says 'unknown preset "relase"'

# gcc and cmake are there, nothing else; no right to install.
tool dpkg-query <<'END'
echo "gcc install ok installed"
echo "cmake install ok installed"
END
tool id <<'END'
echo 1000
END
tool sudo <<'END'
exit 1
END
tool apt-get <<END
echo "\$*" >>"$T/apt"
exit 1
END
setup 2 test --yes
says "apt-get update && apt-get install -y --no-install-recommends libc6-dev ninja-build"
says " tmux"
grep -q 'install.* gcc' "$T/out" && fail "asks for gcc, which is installed"
[ -e "$T/apt" ] && fail "calls apt-get without the right to"
setup 2 build --yes --preset fuzz
says " clang"

# As root it installs, and says so when that fails.
tool id <<'END'
echo 0
END
setup 2 demo --yes
says "missing packages: libc6-dev"
says "could not be installed"
[ "$(cat "$T/apt")" = "update -qq" ] || fail "apt-get was called: $(cat "$T/apt")"
exit $failed
