"""Pushes to a simulator with aioapns or httpx. Prints a line of JSON with all answers.

Usage: foreign_clients.py aioapns|httpx PORT CA-FILE KEY-FILE KEY-ID TEAM-ID TOPIC BURST
"""

import asyncio
import json
import logging
import ssl
import sys
import time

GOOD = "0a" * 32
# The simulator of the test answers tokens by their first digits.
GONE = "dead" + "0a" * 30
BAD = "bad0" + "0a" * 30
PAYLOAD = {"aps": {"alert": {"title": "Hello", "body": "from outside"}}}


async def aioapns(port, ca, key, key_id, team, topic, burst):
    import aioapns
    from aioapns.connection import APNsProductionClientProtocol

    logging.disable(logging.CRITICAL)
    APNsProductionClientProtocol.APNS_SERVER = "localhost"
    context = ssl.create_default_context(cafile=ca)
    # The port is an attribute of the client's protocol in this library.
    APNsProductionClientProtocol.APNS_PORT = port
    client = aioapns.APNs(key=key, key_id=key_id, team_id=team, topic=topic, ssl_context=context, max_connections=2)

    async def push(token, **more):
        request = aioapns.NotificationRequest(
            device_token=token, message=PAYLOAD, push_type=aioapns.PushType.ALERT, **more)
        result = await client.send_notification(request)
        return {"status": int(result.status), "reason": result.description, "id": result.notification_id,
                "sent": request.notification_id, "timestamp": result.timestamp}

    answers = {"good": await push(GOOD), "collapsed": await push(GOOD, collapse_key="one"),
               "gone": await push(GONE), "bad": await push(BAD), "topic": await push(GOOD, apns_topic="com.example.absent")}
    results = await asyncio.gather(*(push(GOOD) for _ in range(burst)))
    answers["burst"] = sum(result["status"] == 200 for result in results)
    client.pool.close()
    return answers


async def httpx(port, ca, key, key_id, team, topic, burst):
    import httpx
    import jwt

    with open(key) as file:
        token = jwt.encode({"iss": team, "iat": int(time.time())}, file.read(), "ES256", {"kid": key_id})
    context = ssl.create_default_context(cafile=ca)
    async with httpx.AsyncClient(http1=False, http2=True, verify=context, timeout=30) as client:
        async def push(device, **headers):
            fields = {"authorization": f"bearer {token}", "apns-topic": topic, "apns-push-type": "alert"}
            fields.update({name.replace("_", "-"): value for name, value in headers.items()})
            answer = await client.post(f"https://localhost:{port}/3/device/{device}", json=PAYLOAD, headers=fields)
            body = answer.json() if answer.content else {}
            return {"status": answer.status_code, "reason": body.get("reason", ""), "id": answer.headers.get("apns-id"),
                    "sent": headers.get("apns_id"), "timestamp": body.get("timestamp"), "http": answer.http_version}

        answers = {"good": await push(GOOD, apns_id="123e4567-e89b-42d3-a456-426655440000"),
                   "collapsed": await push(GOOD, apns_collapse_id="one"), "gone": await push(GONE), "bad": await push(BAD),
                   "topic": await push(GOOD, apns_topic="com.example.absent"),
                   "token": await push(GOOD, authorization="bearer a.b.c")}
        results = await asyncio.gather(*(push(GOOD) for _ in range(burst)))
        answers["burst"] = sum(result["status"] == 200 for result in results)
        return answers


def main():
    name, port, ca, key, key_id, team, topic, burst = sys.argv[1:]
    with open(key) as file:
        text = file.read()
    clients = {"aioapns": aioapns, "httpx": httpx}
    source = text if name == "aioapns" else key
    print(json.dumps(asyncio.run(clients[name](int(port), ca, source, key_id, team, topic, int(burst)))))


if __name__ == "__main__":
    main()
