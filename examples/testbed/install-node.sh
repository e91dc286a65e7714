#!/usr/bin/env bash
# Installs a node's agent on Debian, Raspberry Pi OS or Ubuntu, on x86-64 or ARM, or upgrades it. Run it as root in a directory
# with the wheels of skyhop and skyhop-testbed and with skyhop-agent.service.
# Usage: install-node.sh [--no-packages] [OPTION OF THE AGENT...], such as --dish 192.168.100.1:9200 --interface eth0
#        install-node.sh --back: returns to the version before the last upgrade
# A new version gets a directory of its own, and /opt/skyhop points to it once it works: a failure leaves the old version.
# Releases that the agent has installed by itself, in its own directory, are not used after a call: the version is then the
# one that the call has put in place.
set -euo pipefail

fail() { printf 'install-node: %s\n' "$1" >&2; exit 1; }

place=/opt/skyhop
unit=/etc/systemd/system/skyhop-agent.service
state=/var/lib/skyhop-agent
launcher="$place/bin/python -m skyhop_testbed.launcher"
[ "$(id -u)" = 0 ] || fail "needs root: it creates a user and a service"

restart() { systemctl try-restart skyhop-agent; }

if [ "${1:-}" = --back ]; then
    [ -e "$place.former" ] || fail "there is no former version"
    mv -T "$place.former" "$place.next"
    cp -PT "$place" "$place.former"
    mv -T "$place.next" "$place"
    restart
    printf 'install-node: %s is in use again\n' "$("$place/bin/skyhop" --version)"
    exit
fi

packages=yes
[ "${1:-}" != --no-packages ] || { packages=no; shift; }

here=$(cd "$(dirname "$0")" && pwd)
shopt -s nullglob
core=("$here"/skyhop-[0-9]*_"$(uname -m)".whl) testbed=("$here"/skyhop_testbed-*.whl)
[ "${#core[@]}" = 1 ] || fail "$here has ${#core[@]} wheels of skyhop for $(uname -m); one is wanted: make wheel"
[ "${#testbed[@]}" = 1 ] || fail "$here has ${#testbed[@]} wheels of skyhop-testbed; one is wanted: make wheel"
[ -f "$here/skyhop-agent.service" ] || fail "$here has no skyhop-agent.service: copy it from examples/testbed"

if [ "$packages" = yes ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        python3 python3-venv ca-certificates bubblewrap iproute2 iperf3 iputils-ping util-linux
    # time-sync.target then waits for the clock.
    systemctl enable systemd-time-wait-sync.service
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "needs Python 3.11 or newer: upgrade the system"

made=$place.$(date +%s)
trap 'rm -rf "$made"' ERR INT TERM
python3 -m venv "$made"
"$made/bin/pip" install --quiet --disable-pip-version-check "${core[0]}" "${testbed[0]}"
"$made/bin/skyhop" testbed --help >/dev/null || { rm -rf "$made"; fail "the new version does not start; the old one stays in use"; }
trap - ERR INT TERM

id -u skyhop >/dev/null 2>&1 || useradd --system --home-dir "$state" --shell /usr/sbin/nologin skyhop
install -d -m 700 -o skyhop "$state"
if [ ! -e "$unit" ] || [ $# -gt 0 ]; then
    sed "s|^ExecStart=.*|ExecStart=$launcher --state $state $*|" "$here/skyhop-agent.service" >"$unit.new"
    mv "$unit.new" "$unit"
fi
# The service of an earlier installer starts the agent itself; the launcher takes the same options.
sed -i "s|^ExecStart=$place/bin/skyhop testbed agent |ExecStart=$launcher |" "$unit"
systemctl daemon-reload

[ ! -e "$place" ] || cp -PT --remove-destination "$place" "$place.former"
ln -sfn "$made" "$place.next"
mv -T "$place.next" "$place"
# Two versions stay: the one in use, and the former one.
for old in "$place".[0-9]*; do
    [ "$old" = "$made" ] || [ "$old" = "$(readlink "$place.former" || true)" ] || rm -rf "$old"
done
restart
printf 'install-node: %s is installed\n' "$("$place/bin/skyhop" --version)"
[ -e "$state/identity" ] || printf 'enrol the node: sudo -u skyhop %s/bin/skyhop testbed enrol NODE.invitation --state %s\n' "$place" "$state"
