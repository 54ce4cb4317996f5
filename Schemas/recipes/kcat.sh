#!/bin/sh
# Sends a push in binary mode and one in structured mode with kcat.
#
#   kcat.sh [BOOTSTRAP_SERVERS [TOPIC [DEVICE_TOKEN]]]
set -eu
servers=${1:-localhost:9092}
topic=${2:-sluice.jobs}
token=${3:-00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0}

# Binary mode: fields are headers, the value is the payload. -K separates the key from the value.
printf '%s\t%s\n' "$token" '{"aps":{"alert":"Hello"}}' |
    kcat -P -b "$servers" -t "$topic" -K '\t' \
        -H apns-topic=com.example.news -H apns-push-type=alert -H ttl=3600

# Structured mode: a document with all fields needs no header.
document='{"kind":"push","device-token":"'$token'","topic":"com.example.news","push-type":"alert","payload":{"aps":{"alert":"Hello"}}}'
printf '%s\t%s\n' "$token" "$document" | kcat -P -b "$servers" -t "$topic" -K '\t'
