#!/usr/bin/env bash
# Installs the C libraries that Sluice links against, with apt, when they are missing.
#
#   Deploy/install-dependencies.sh          packages of a build
#   Deploy/install-dependencies.sh --test   also packages of the tests
#   Deploy/install-dependencies.sh --check  installs nothing; exit status 1 when a package is missing
#
# Needs no network and no root, and changes nothing, when all packages are installed.
set -euo pipefail

build_packages=(libnghttp2-dev libssl-dev librdkafka-dev librocksdb-dev libsimdjson-dev pkg-config make)
test_packages=(curl nghttp2-client nghttp2-server nghttp2-proxy nginx h2o kcat python3-h2 python3-jsonschema python3-yaml)
# Clients and a browser for further tests. Not every release has them, and without them their tests are skipped.
optional_packages=(python3-confluent-kafka python3-kafka python3-venv chromium)
# Tools of Deploy/checks, which leave themselves out without them.
optional_packages+=(prometheus lintian debootstrap shellcheck fakeroot dpkg-dev man-db tmux systemd bash-completion)
# Links that drop packets; their tests also need root.
optional_packages+=(iproute2)
runtime_help='  libnghttp2 >= 1.50, OpenSSL >= 3.0, librdkafka >= 2.0, RocksDB >= 7.7, simdjson >= 3.0 (with headers), pkg-config'
test_help='  curl with HTTP/2, nghttp, h2load, nghttpd, nghttpx (nghttp2), nginx, h2o, kcat, Python 3 with h2, jsonschema and PyYAML'

with_tests=false
check_only=false
for argument in "$@"; do
    case "$argument" in
        --test) with_tests=true ;;
        --check) check_only=true ;;
        -h | --help)
            sed -n '2,8s/^# \{0,1\}//p' "$0"
            exit 0
            ;;
        *)
            echo "install-dependencies: unknown argument '$argument' (known: --test, --check)" >&2
            exit 64
            ;;
    esac
done

wanted=("${build_packages[@]}")
if $with_tests; then
    wanted+=("${test_packages[@]}")
fi

explain_elsewhere() {
    echo "install-dependencies: $1" >&2
    echo "Install these with your system's package manager and run the command again:" >&2
    echo "$runtime_help" >&2
    if $with_tests; then
        echo "$test_help" >&2
    fi
    echo "This script installs them on Debian 12, Ubuntu 24.04 and later: ${wanted[*]}" >&2
    exit 1
}

# Without dpkg, libraries that pkg-config finds are enough.
libraries_found() {
    command -v pkg-config >/dev/null 2>&1 \
        && pkg-config --exists 'libnghttp2 >= 1.50' 'openssl >= 3.0' 'rdkafka >= 2.0' 'rocksdb >= 7.7' 'simdjson >= 3.0'
}

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    if libraries_found; then
        exit 0
    fi
    explain_elsewhere "this system has no apt, and pkg-config does not find all libraries."
fi

is_installed() {
    local status
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null || true)
    # A virtual package (pkg-config is one of pkgconf's in newer releases) has no status of its own.
    [ "$status" = installed ] || { [ "$1" = pkg-config ] && command -v pkg-config >/dev/null 2>&1; }
}

missing=()
for package in "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
done
# Optional packages that this release has.
absent=()
if $with_tests; then
    for package in "${optional_packages[@]}"; do
        if ! is_installed "$package" && apt-cache show "$package" >/dev/null 2>&1; then absent+=("$package"); fi
    done
fi

# Python packages from PyPI, in the build's directory. Their absence only skips tests.
install_python_packages() {
    local root requirements stamp
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    requirements=$root/Tests/requirements.txt
    stamp=$root/.build/python/requirements.txt
    if cmp -s "$requirements" "$stamp"; then return; fi
    echo "install-dependencies: installing the Python packages of Tests/requirements.txt into .build/python" >&2
    if python3 -m venv --clear "$root/.build/python" >/dev/null 2>&1 \
        && "$root/.build/python/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2; then
        cp "$requirements" "$stamp"
    else
        echo "install-dependencies: PyPI is not available; tests with aioapns, httpx and a browser will be skipped" >&2
    fi
}

if [ ${#missing[@]} -eq 0 ] && { [ ${#absent[@]} -eq 0 ] || $check_only; }; then
    if $with_tests && ! $check_only; then install_python_packages; fi
    exit 0
fi
if $check_only; then
    echo "missing: ${missing[*]}" >&2
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        if [ ${#missing[@]} -eq 0 ]; then
            echo "install-dependencies: without root or sudo, ${absent[*]} can't be installed; their tests will be skipped" >&2
            install_python_packages
            exit 0
        fi
        explain_elsewhere "missing: ${missing[*]}; installing them needs root or sudo."
    fi
    as_root=(sudo)
fi

echo "install-dependencies: installing ${missing[*]} ${absent[*]}" >&2
# Asks no question, because CI has no terminal.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold)
install_missing() {
    "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >&2
}

# Debian would start the services of nginx, h2o, nghttp2-proxy and prometheus, now and at every boot. The tests need the
# programs only. A policy-rc.d that answers 101 keeps a package from starting its service. Existing services stay unchanged,
# because they belong to the machine's owner.
services=()
add_service() {
    if [ ! -e "/lib/systemd/system/$1.service" ]; then services+=("$1.service"); fi
}
policy=/usr/sbin/policy-rc.d
own_policy=false
for package in "${missing[@]}" "${optional_packages[@]}"; do
    if is_installed "$package"; then continue; fi
    case "$package" in
        nginx | h2o | prometheus) add_service "$package" ;;
        nghttp2-proxy) add_service nghttpx ;;
    esac
done
if [ ${#services[@]} -gt 0 ] && [ ! -e "$policy" ]; then
    own_policy=true
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
clean_up() {
    if $own_policy; then
        "${as_root[@]}" rm -f "$policy"
    fi
    if [ ${#services[@]} -gt 0 ] && command -v systemctl >/dev/null 2>&1; then
        "${as_root[@]}" systemctl disable --quiet "${services[@]}" >/dev/null 2>&1 || true
    fi
}
trap clean_up EXIT
# Retries after a refresh, because package lists may be absent (a fresh container) or stale.
if [ ${#missing[@]} -gt 0 ] && ! install_missing; then
    "${apt[@]}" update </dev/null >&2
    if ! install_missing; then
        explain_elsewhere "apt could not install ${missing[*]} (its reason is above)."
    fi
fi
if $with_tests; then
    for package in "${optional_packages[@]}"; do
        if is_installed "$package"; then continue; fi
        if ! "${apt[@]}" install --no-install-recommends "$package" </dev/null >&2; then
            echo "install-dependencies: $package is not available; its tests will be skipped" >&2
        fi
    done
    install_python_packages
fi
