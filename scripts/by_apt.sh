# For scripts that look for a program: installs it as root on Debian or Ubuntu, and does nothing elsewhere.
# by_apt MESSAGE PACKAGE...: installs the first of the packages that there is.
by_apt() {
    local message=$1 package
    shift
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
    echo "$message"
    apt-get update -q || true
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" || true
            return 0
        fi
    done
}
