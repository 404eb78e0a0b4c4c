#!/bin/sh
# The house rules that a script can check (docs/STYLE.md).
# timeout: 400 (it reads every file with a process each: slow on a busy machine)
set -u
cd "$(dirname "$0")/../.." || exit 1
n=0 bad=0

# check NAME COMMAND... -- one test: the command prints nothing and succeeds
check() {
	name=$1
	shift
	n=$((n + 1))
	if out=$("$@" 2>&1) && [ -z "$out" ]; then
		echo "ok $n - $name"
	else
		bad=1
		echo "not ok $n - $name"
		printf '%s\n' "$out" | head -n 40 | sed 's/^/# /'
	fi
}

# Tracked files (in an unpacked archive: all but products) whose path matches.
files() { { git ls-files 2>/dev/null || find . \( -name 'build*' -o -name node_modules -o -name .venv -o -name __pycache__ -o -path ./fuzz/found \) -prune -o -type f -print | sed 's,^\./,,'; } | grep -E "$1"; }
sources=$(files '^src/.*\.[ch]$')
all=$(files '^(src|fuzz|tests|tools)/.*\.[ch]$')

check_layers() { tools/check-layers src/LAYERS $sources; }
check_size() { tools/check-size $all; }
check_banned() { tools/check-banned $sources; }

# Marks of unfinished work; written in two pieces so that this file passes.
check_marks() {
	! files . | grep -vE '^(docs/|LICENSE)' | xargs -d '\n' grep -nIwE 'TO''DO|FIX''ME|XX''X|HA''CK' --
}

check_shells() {
	files . | while read -r f; do
		[ -f "$f" ] || continue
		case $(head -c 40 "$f" | tr -d '\0' | head -n 1) in
		'#!/bin/sh'*) sh -n "$f" 2>&1 ;;
		'#!/bin/bash'* | '#!/usr/bin/env bash'*) bash -n "$f" 2>&1 ;;
		'#!'*) ;;
		*) continue ;;
		esac
		case $f in tests/e2e/*lib* | tests/*/lib*) continue ;; esac
		[ -x "$f" ] || echo "$f: starts with #! and isn't executable"
	done
}

check_pythons() {
	for f in $(files . | grep -vE '\.(md|c|h|json|txt)$'); do
		case $(head -c 60 "$f" 2>/dev/null | tr -d '\0' | head -n 1) in
		'#!'*python3*) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$f" 2>&1 ;;
		esac
	done
}

check_jsons() {
	for f in $(files '\.json$'); do python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$f" 2>&1 | tail -n 1 | sed "s,^,$f: ,"; done
}

# Tabs in C, no blanks at line ends, a newline at the end, no file of more than 1 MiB.
check_blanks() {
	[ -z "$all" ] || grep -nE '[ 	]+$' $all
	[ -z "$all" ] || grep -nE '^ {4,}[^ *]' $sources
	for f in $all; do [ -z "$(tail -c 1 "$f")" ] || echo "$f: no newline at the end"; done
	files . | while read -r f; do [ ! -f "$f" ] || [ "$(stat -c %s "$f")" -le 1048576 ] || echo "$f: larger than 1 MiB"; done
}

check_locks() { files '(package-lock\.json|yarn\.lock|\.pyc|\.o|\.core)$' || true; }

check_typedefs() { ! grep -nE '^typedef +(struct|union)|^\}[ ]*[a-z_]+_t;' $sources; }

check "includes keep to src/LAYERS" check_layers
check "files at most 800 lines, functions at most 60" check_size
check "no banned calls" check_banned
check "no typedef'd structs" check_typedefs
check "no marks of unfinished work" check_marks
check "shell scripts parse, scripts are executable" check_shells
check "Python parses" check_pythons
check "JSON parses" check_jsons
check "tabs, line ends, file sizes" check_blanks
check "no lock files or products in the tree" check_locks
echo "1..$n"
exit $bad
