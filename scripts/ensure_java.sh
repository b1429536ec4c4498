#!/usr/bin/env bash
# Check for a Java that Spark starts with: 17 or newer, with the module jdk.incubator.vector, which trimmed runtimes lack.
# As root on Debian or Ubuntu a missing one is installed; elsewhere the message says what to install.
set -euo pipefail
. "$(dirname "$0")/by_apt.sh"

problem() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
    command -v "$java" >/dev/null || { echo "there is no $java"; return; }
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ] || { echo "$java is version ${version:-unknown}"; return; }
    "$java" --list-modules 2>/dev/null | grep '^jdk\.incubator\.vector' >/dev/null || echo "$java lacks the module jdk.incubator.vector"
}

found=$(problem)
[ -n "$found" ] || exit 0

if [ -z "${JAVA_HOME:-}" ]; then
    by_apt "Spark needs Java 17 or newer, and $found; installing one." openjdk-17-jre-headless openjdk-21-jre-headless
    found=$(problem)
    [ -n "$found" ] || exit 0
fi

cat >&2 <<TEXT
Spark needs a full Java runtime, 17 or newer, and $found.
Install one and run this again:
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora           sudo dnf install java-21-openjdk-headless
  macOS            brew install openjdk@17
or point JAVA_HOME at one that is there.
TEXT
exit 1
