#!/bin/sh
# Makes .venv ready for `demo`, `test` or `bench`. Quick when nothing changed; says what it does when it works.
# A stamp per mode holds the folder and interpreter it was made for: a moved or upgraded .venv is made anew.
set -eu
cd "$(dirname "$0")/.."

mode=$1
case $mode in
    demo) extras=fast covers=demo ;;
    test) extras=fast,memory,dev covers='demo test' ;;
    bench) extras=fast,memory,dev,bench covers='demo test bench' ;;
    *) echo "usage: setup.sh demo|test|bench" >&2; exit 2 ;;
esac

say() { echo "[pallas] $*"; }
fail() { for line in "$@"; do echo "[pallas] $line" >&2; done; exit 1; }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.11 or newer (it says: $(version_of "$PYTHON" || echo 'not found'))."
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    fail "Pallas Cluster needs Python 3.11 or newer; python3 here is: $(version_of python3 || echo 'not installed')." \
        "Debian 12, Ubuntu 24.04 and later:  apt install python3 python3-venv" \
        "elsewhere: install one, then  make PYTHON=/path/to/python3.12 ..."
}

stamp=.venv/.ready-$mode
state() { echo "$(pwd) | $(version_of .venv/bin/python)"; }

if [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$(cat "$stamp")" = "$(state || true)" ]; then
    exit 0
fi

if [ -d .venv ] && ! { [ -f .venv/.place ] && [ "$(cat .venv/.place)" = "$(pwd)" ] && new_enough .venv/bin/python; }; then
    say "the old .venv is unfinished, moved or of another Python: making it anew"
    rm -rf .venv
fi

if [ ! -d .venv ]; then
    python=$(choose_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null || fail \
        "$python cannot make virtual environments (its venv module is missing or incomplete)." \
        "Debian and Ubuntu:  apt install python3-venv" \
        "then run the same command again."
    say "1/2 making .venv with Python $(version_of "$python") ($python)"
    "$python" -m venv .venv || { rm -rf .venv; fail "'$python -m venv .venv' failed; its words are above."; }
    pwd > .venv/.place
fi

say "2/2 installing Pallas Cluster and its packages [$extras] into .venv (the first time this takes a minute or so)"
began=$(date +%s)
log=.venv/install.log
rm -f .venv/.ready-*
if [ -t 1 ]; then eol='\r'; else eol=''; fi
# pip's own words go to the log; a terminal sees the name of the package in work on one line.
{
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off -e ".[$extras]" 2>&1 \
        && echo 'pip ended: 0' || echo 'pip ended: 1'
} | tee "$log" | awk -v eol="$eol" '
    eol != "" && /^Collecting /  { printf "[pallas]     %-60.60s%s", $2, "\r"; fflush() }
    eol != "" && /^Installing /  { printf "[pallas]     %-60.60s%s", "unpacking", "\r"; fflush() }
    END { if (eol != "") printf "%-74s%s", "", "\r" }'
if [ "$(tail -n 1 "$log")" != 'pip ended: 0' ]; then
    grep -v '^pip ended' "$log" | tail -n 15 >&2
    fail "the installation failed; above is the end of $log." \
        "No network? Is a proxy needed (HTTPS_PROXY)? Alpine and Windows have no wheel of the embedded server:" \
        "use Debian, Ubuntu, Fedora or macOS there, or the container image (compose.yaml)."
fi
for covered in $covers; do state > ".venv/.ready-$covered"; done
say "installed in $(($(date +%s) - began)) s"
