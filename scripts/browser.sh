#!/bin/sh
# Finds or installs a Chromium for the browser tests and writes its path into the file given.
# Never fails: without a browser it says so, and then the browser tests do (unless PALLAS_TEST_BROWSER=none).
set -u
cd "$(dirname "$0")/.."
answer=$1

say() { echo "[pallas] $*"; }
found() { echo "$1" > "$answer"; exit 0; }
runs() { [ -n "$1" ] && "$1" --version >/dev/null 2>&1; }

look() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        path=$(command -v "$name" 2>/dev/null) && runs "$path" && found "$path"
    done
    for path in "/Applications/Chromium.app/Contents/MacOS/Chromium" \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
        [ -x "$path" ] && found "$path"
    done
    # `true`: a machine without Playwright's own download only lacks this one answer
    path=$(.venv/bin/python -c '
from playwright.sync_api import sync_playwright
with sync_playwright() as p: print(p.chromium.executable_path)' 2>/dev/null) || true
    [ -x "$path" ] && found "$path"
}

if [ -n "${PALLAS_TEST_BROWSER:-}" ]; then
    found "$PALLAS_TEST_BROWSER"
fi
look

as_root=none
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root='sudo -n'
fi
if [ "$as_root" != none ] && command -v apt-get >/dev/null 2>&1; then
    say 'no Chromium found: installing the package chromium with apt-get (a minute or two)'
    { $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends chromium; } \
        >.venv/browser.log 2>&1 || say 'apt-get could not install it (.venv/browser.log)'
    look
fi
say "no Chromium found: trying Playwright's own download (about 150 MB)"
.venv/bin/python -m playwright install chromium >>.venv/browser.log 2>&1 || say 'that failed too (.venv/browser.log)'
look

echo missing > "$answer"
cat >&2 <<'END'
[pallas] ======================================================================================
[pallas] THERE IS NO CHROMIUM on this machine and none could be installed: THE BROWSER TESTS WILL
[pallas] FAIL. Install one (Debian: sudo apt install chromium), or point to one with
[pallas]     PALLAS_TEST_BROWSER=/path/to/chromium make test
[pallas] or leave the browser tests out, knowingly:
[pallas]     PALLAS_TEST_BROWSER=none make test
[pallas] ======================================================================================
END
