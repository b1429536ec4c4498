#!/usr/bin/env bash
# Check for PostgreSQL's server programs, which the tests of its sink start.
# As root on Debian or Ubuntu missing ones are installed; elsewhere the message says what to install, and the tests are skipped.
set -euo pipefail
. "$(dirname "$0")/by_apt.sh"

found() {
    local directory
    for directory in /usr/lib/postgresql/*/bin "$(dirname "$(command -v postgres || echo /nowhere/postgres)")" /usr/local/bin /opt/homebrew/bin /usr/bin; do
        [ -x "$directory/initdb" ] && [ -x "$directory/postgres" ] && return
    done
    return 1
}

found && exit 0

by_apt "The tests need PostgreSQL's server programs; installing them." postgresql
found && exit 0

cat >&2 <<TEXT
PostgreSQL's server programs (initdb, postgres) are missing, so tests that need a server cannot run.
  Debian, Ubuntu   sudo apt-get install postgresql
  Fedora           sudo dnf install postgresql-server
  macOS            brew install postgresql@17
TEXT
[ "$(id -u)" != 0 ]
