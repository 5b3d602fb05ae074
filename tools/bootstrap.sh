# Sourced by tools/test and tools/sandbox: the system packages and the virtual
# environment they need. Fast when nothing is missing; may be run again at any time.
#
#   bootstrap_system PROFILE...   Debian packages of bindep.txt
#   bootstrap_venv                ./.venv, or $KRONOS_VENV as it is; sets VENV
#
# Each prints what it does and returns 1, with one clear message, when it cannot.

BOOTSTRAP_TOP=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)

bootstrap_say() { printf 'bootstrap: %s\n' "$*"; }
bootstrap_fail() { printf 'bootstrap: error: %s\n' "$*" >&2; return 1; }

# The packages of bindep.txt for the profiles given, one a line. A line is
# "name [platform:dpkg profile...]": it applies if it names no profile or one of ours.
bootstrap_packages() {
    local line name selectors word named wanted
    while read -r line; do
        line=${line%%#*}
        name=${line%%[[:space:]]*}
        [ -n "$name" ] || continue
        selectors=${line#"$name"}
        selectors=${selectors//[\[\]]/ }
        named=no wanted=no
        for word in $selectors; do
            case $word in
                platform:dpkg) ;;
                platform:*) named=yes ;;
                *)
                    named=yes
                    case " $* " in *" $word "*) wanted=yes ;; esac
                    ;;
            esac
        done
        if [ "$named" = no ] || [ "$wanted" = yes ]; then
            printf '%s\n' "$name"
        fi
    done < "$BOOTSTRAP_TOP/bindep.txt"
}

bootstrap_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# apt-get install that starts no service: Debian asks /usr/sbin/policy-rc.d first.
# A policy that was there before comes back, also when the install is interrupted.
bootstrap_apt_install() (
    policy=/usr/sbin/policy-rc.d
    saved=$policy.before-kronos-nova
    mark='kronos-nova: no service starts during this installation'
    trap 'rm -f "$policy"; [ ! -e "$saved" ] || mv -f "$saved" "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # After an install that was killed: a policy with our mark is not to be kept,
    # and a $saved is the one to bring back.
    if [ -e "$policy" ] && [ ! -e "$saved" ] && ! grep -q "$mark" "$policy"; then
        mv "$policy" "$saved"
    fi
    printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" > "$policy"
    chmod 755 "$policy"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends "$@"
)

bootstrap_system() {
    local package missing=() log command
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        bootstrap_fail "this is not a Debian system. Install by hand what bindep.txt names" \
            "for the profiles: $*"
        return 1
    fi
    while read -r package; do
        bootstrap_installed "$package" || missing+=("$package")
    done < <(bootstrap_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0

    command="apt-get install --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        bootstrap_fail "missing Debian packages, and only root can install them. As root: $command"
        return 1
    fi
    bootstrap_say "installing Debian packages (no service is started): ${missing[*]}"
    log=$(mktemp) || return 1
    # tools/test and tools/sandbox may start at the same time: one after the other.
    if ! ( flock 9 && apt-get -o DPkg::Lock::Timeout=600 update -q 9>&- &&
            bootstrap_apt_install "${missing[@]}" 9>&- ) \
            9> "$BOOTSTRAP_TOP/.bootstrap.lock" > "$log" 2>&1 < /dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        bootstrap_fail "apt-get failed (its last lines are above). Repair that, or run: $command"
        return 1
    fi
    rm -f "$log"
    for package in "${missing[@]}"; do
        if ! bootstrap_installed "$package"; then
            bootstrap_fail "$package is still not installed after: $command"
            return 1
        fi
    done
}

# A Python 3.11 that can make virtual environments: Debian's own first.
bootstrap_python() {
    local candidate
    for candidate in /usr/bin/python3.11 python3.11; do
        if "$candidate" -c \
            'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' \
            >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    bootstrap_fail "no Python 3.11 with venv found. On Debian 12: apt-get install python3-venv"
}

# make_venv PYTHON DIR [prepare]: everything the tests and the sandbox need, in DIR; with
# "prepare" all but the project itself, whose installation writes into the checkout. Stamps
# are written last, so what was interrupted half-way is made again.
make_venv() {
    local python=$1 dir=$2 stamp prepared inputs
    inputs=$(
        cd "$BOOTSTRAP_TOP" && {
            pwd
            "$python" -VV
            cat setup.cfg setup.py requirements.txt test-requirements.txt doc/requirements.txt \
                constraints.txt
        } | sha256sum
    ) || return 1
    stamp=$dir/kronos-nova.stamp
    if [ -x "$dir/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$inputs" ]; then
        return 0
    fi
    prepared=$dir/kronos-nova.prepared
    if [ "$(cat "$prepared" 2>/dev/null)" != "$inputs" ]; then
        bootstrap_say \
            "making ${dir#"$BOOTSTRAP_TOP"/} with $("$python" -V) (about two minutes)"
        rm -rf "$dir" || return 1
        if ! "$python" -m venv "$dir"; then
            bootstrap_fail "$python cannot make a virtual environment in $dir"
            return 1
        fi
        # Half of the modules are never imported; Python compiles those that are.
        bootstrap_pip "$dir" setuptools wheel pbr &&
            bootstrap_pip "$dir" --no-compile --no-build-isolation -r requirements.txt \
                -r test-requirements.txt -r doc/requirements.txt || return 1
        printf '%s\n' "$inputs" > "$prepared"
    fi
    if [ "${3:-}" != prepare ]; then
        bootstrap_pip "$dir" --no-compile --no-build-isolation \
            -e '.[api,client,rebalancer,scheduler]' || return 1
        printf '%s\n' "$inputs" > "$stamp"
    fi
}

# bootstrap_pip DIR ARGUMENT...: pip install in DIR, with our pins.
bootstrap_pip() {
    local dir=$1
    shift
    if ! (
        cd "$BOOTSTRAP_TOP" &&
        export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 &&
        "$dir/bin/pip" install -q -c constraints.txt "$@"
    ); then
        bootstrap_fail "pip could not install into $dir (see above). A git checkout with" \
            "its .git directory and a reachable package index are needed; run the command again"
        return 1
    fi
}

bootstrap_venv() {
    local python
    if [ -n "${KRONOS_VENV:-}" ]; then
        if [ ! -x "$KRONOS_VENV/bin/python" ]; then
            bootstrap_fail "KRONOS_VENV=$KRONOS_VENV has no bin/python. Unset it, or make that venv"
            return 1
        fi
        VENV=$KRONOS_VENV
        return 0
    fi
    python=$(bootstrap_python) || return 1
    # tools/test and tools/sandbox may start at the same time.
    if ! (
        flock 9 || exit 1
        make_venv "$python" "$BOOTSTRAP_TOP/.venv" 9>&-
    ) 9> "$BOOTSTRAP_TOP/.bootstrap.lock"; then
        return 1
    fi
    VENV=$BOOTSTRAP_TOP/.venv
}
