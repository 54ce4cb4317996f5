#!/usr/bin/env python3
"""Sends a push in binary mode and one in structured mode with confluent-kafka.

    confluent_kafka_push.py [BOOTSTRAP_SERVERS [TOPIC [DEVICE_TOKEN]]]
"""

import json
import sys

from confluent_kafka import Producer

DEFAULTS = ["localhost:9092", "sluice.jobs", "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"]
servers, topic, token = sys.argv[1:] + DEFAULTS[len(sys.argv) - 1 :]
payload = {"aps": {"alert": "Hello"}}
failures = []

producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})


def delivered(error, message):
    if error is not None:
        failures.append(error)


# Binary mode: fields are headers, the value is the payload.
producer.produce(
    topic,
    key=token,
    value=json.dumps(payload),
    headers={"apns-topic": "com.example.news", "apns-push-type": "alert", "ttl": "3600"},
    on_delivery=delivered,
)
# Structured mode: a document with all fields needs no header.
document = {
    "kind": "push",
    "device-token": token,
    "topic": "com.example.news",
    "push-type": "alert",
    "payload": payload,
}
producer.produce(topic, key=token, value=json.dumps(document), on_delivery=delivered)
producer.flush(30)
sys.exit(f"not delivered: {failures}" if failures else 0)
