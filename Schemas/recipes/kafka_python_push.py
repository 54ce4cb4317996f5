#!/usr/bin/env python3
"""Sends a push in binary mode and one in structured mode with kafka-python.

    kafka_python_push.py [BOOTSTRAP_SERVERS [TOPIC [DEVICE_TOKEN]]]
"""

import json
import sys

from kafka import KafkaProducer

DEFAULTS = ["localhost:9092", "sluice.jobs", "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"]
servers, topic, token = sys.argv[1:] + DEFAULTS[len(sys.argv) - 1 :]
payload = {"aps": {"alert": "Hello"}}

producer = KafkaProducer(
    bootstrap_servers=servers,
    # The key is the token's plain text: json.dumps would add quotes.
    key_serializer=lambda key: key.encode(),
    value_serializer=lambda value: json.dumps(value).encode(),
)
# Binary mode: fields are headers, as pairs of text and bytes, and the value is the payload.
headers = [("apns-topic", b"com.example.news"), ("apns-push-type", b"alert"), ("ttl", b"3600")]
futures = [producer.send(topic, key=token, value=payload, headers=headers)]
# Structured mode: a document with all fields needs no header.
document = {
    "kind": "push",
    "device-token": token,
    "topic": "com.example.news",
    "push-type": "alert",
    "payload": payload,
}
futures.append(producer.send(topic, key=token, value=document))
for future in futures:
    future.get(timeout=30)
producer.close()
