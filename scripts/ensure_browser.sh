#!/usr/bin/env bash
# Check for Chromium, in which a test looks at the documentation site.
# A missing browser ends nothing: the site is built and its links are followed all the same.
# As root on Debian or Ubuntu a missing one is installed; elsewhere the message says what to install, and the test is skipped.
set -euo pipefail
. "$(dirname "$0")/by_apt.sh"

found() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
        command -v "$name" >/dev/null && return
    done
    return 1
}

found && exit 0

by_apt "A test looks at the documentation site in Chromium; installing it." chromium
found && exit 0

cat >&2 <<TEXT
Chromium is missing, so the test that looks at the documentation site is skipped.
  Debian, Ubuntu   sudo apt-get install chromium
  Fedora           sudo dnf install chromium
  macOS            brew install --cask chromium
TEXT
