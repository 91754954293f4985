#!/bin/sh
# Writes the manual page and the completions: write.sh ROLLTOP PROSE FOLDER
set -eu
"$1" completion bash >"$3/rolltop.bash"
"$1" completion zsh >"$3/_rolltop"
"$1" completion fish >"$3/rolltop.fish"
"$1" completion man >"$3/flags.1"
# The flags stand before the exit status, as they do in other manuals.
{
    sed '/^\.SH EXIT STATUS$/,$d' "$2"
    cat "$3/flags.1"
    sed -n '/^\.SH EXIT STATUS$/,$p' "$2"
} >"$3/rolltop.1"
rm -f "$3/flags.1"
