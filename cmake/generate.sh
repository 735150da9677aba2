#!/bin/sh
# generate.sh PROGRAM DIR - write the manual pages and completion scripts that the program makes of its own tables.
set -e
rm -rf "$2"
mkdir -p "$2/man1"
"$1" help --man >"$2/man1/banyan.1"
for verb in $("$1" help --list); do
    "$1" help --man "$verb" >"$2/man1/banyan-$verb.1"
done
for shell in bash zsh fish; do
    "$1" completion $shell >"$2/banyan.$shell"
done
