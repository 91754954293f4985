#!/bin/sh
# Writes the manual page and the completions: write.sh ROLLTOP PROSE FOLDER
set -eu
"$1" completion bash >"$3/rolltop.bash"
"$1" completion zsh >"$3/_rolltop"
"$1" completion fish >"$3/rolltop.fish"
"$1" completion man >"$3/flags.1"
cat "$2" "$3/flags.1" >"$3/rolltop.1"
rm -f "$3/flags.1"
