#!/usr/bin/env bash
# Reports a Swift toolchain that is missing or too old. Argument: the swift command (default: swift).
set -euo pipefail

swift=${1:-swift}
required_major=6
required_minor=2
advice="Install Swift ${required_major}.${required_minor} or later (https://www.swift.org/install/linux/) and put it first in PATH, or run make with SWIFT=/path/to/swift."

if ! command -v "$swift" >/dev/null 2>&1; then
    echo "check-toolchain: the command '$swift' doesn't exist. $advice" >&2
    exit 1
fi
version=$("$swift" --version 2>/dev/null | sed -n 's/.*Swift version \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
version=${version%%$'\n'*}
major=${version%%.*}
minor=${version#*.}
if [ -z "$version" ]; then
    echo "check-toolchain: '$swift --version' prints no Swift version. $advice" >&2
    exit 1
fi
if [ "$major" -lt "$required_major" ] || { [ "$major" -eq "$required_major" ] && [ "$minor" -lt "$required_minor" ]; }; then
    echo "check-toolchain: Swift $version is too old for Sluice. $advice" >&2
    exit 1
fi
