#!/usr/bin/env python3
"""An HTTP/2 server in the place of APNs that fails in one way for a while, and then works.

The fault begins with the first request. The log has a line for each event:

    C           a connection
    E           the end of a connection
    R TOKEN T   a request, so many seconds after the first
    A TOKEN     an answer with 2xx
"""
import argparse
import asyncio
import json
import random
import ssl
import sys
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings


class Server:
    def __init__(self, arguments):
        self.arguments = arguments
        self.name, *self.parameters = arguments.fault.split(":")
        self.random = random.Random(1)
        self.begin = None
        self.log = open(arguments.log, "w", buffering=1)

    def note(self, *words):
        self.log.write(" ".join(words) + "\n")

    def first(self):
        if self.begin is None:
            self.begin = time.monotonic()

    @property
    def elapsed(self):
        return 0 if self.begin is None else time.monotonic() - self.begin

    @property
    def is_failing(self):
        return self.elapsed < self.arguments.seconds

    def parameter(self, index, default):
        return type(default)(self.parameters[index]) if index < len(self.parameters) else default

    def chance(self, share):
        return self.random.random() < share


class Peer(asyncio.Protocol):
    def __init__(self, server):
        self.server = server
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=False, header_encoding=None, validate_outbound_headers=False,
                normalize_outbound_headers=False))
        self.tokens = {}
        self.topics = {}
        self.unacknowledged = 0
        self.streams = 1000
        self.accepted = 0
        self.is_open = False

    def connection_made(self, transport):
        self.transport = transport
        self.is_open = True
        self.server.note("C")
        self.streams = self.stream_limit()
        self.h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.streams})
        self.h2.initiate_connection()
        self.flush()
        if self.server.name in ("streams", "window"):
            asyncio.get_event_loop().call_later(0.05, self.tick)

    def connection_lost(self, error):
        self.is_open = False
        self.server.note("E")

    def flush(self):
        data = self.h2.data_to_send()
        if data and self.is_open:
            self.transport.write(data)

    def end(self):
        self.flush()
        self.transport.close()
        self.is_open = False

    def stream_limit(self):
        """1000, 1, 0, and 1000 again."""
        if self.server.name != "streams" or not self.server.is_failing or self.server.begin is None:
            return 1000
        part = self.server.elapsed / self.server.arguments.seconds
        return 1000 if part < 0.2 else 1 if part < 0.4 else 0

    def tick(self):
        if not self.is_open:
            return
        limit = self.stream_limit()
        if limit != self.streams:
            self.streams = limit
            self.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: limit})
            self.flush()
        asyncio.get_event_loop().call_later(0.05, self.tick)

    def data_received(self, data):
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            print(f"faulty_apns: {error!r}", file=sys.stderr)
            return self.end()
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                headers = dict(event.headers)
                self.tokens[event.stream_id] = headers[b":path"].decode().rsplit("/", 1)[1]
                self.topics[event.stream_id] = headers.get(b"apns-topic", b"").decode()
            elif isinstance(event, h2.events.DataReceived):
                self.unacknowledged += event.flow_controlled_length
            elif isinstance(event, h2.events.StreamReset):
                self.tokens.pop(event.stream_id, None)
            if isinstance(event, (h2.events.RequestReceived, h2.events.DataReceived)):
                if event.stream_ended is not None:
                    self.request(event.stream_id)
            if not self.is_open:
                return
        keeps = self.server.name == "window" and self.server.is_failing
        if self.unacknowledged and not keeps:
            self.h2.increment_flow_control_window(self.unacknowledged)
            self.unacknowledged = 0
        self.flush()

    def request(self, stream):
        token = self.tokens.get(stream)
        topic = self.topics.pop(stream, None)
        if token is None:
            return
        self.server.first()
        self.server.note("R", token, f"{self.server.elapsed:.3f}")
        concerned = self.server.arguments.topic in (None, topic)
        if concerned and self.server.is_failing and self.fail(stream, token):
            return
        self.later(self.accept, stream)

    def later(self, action, *arguments):
        asyncio.get_event_loop().call_later(self.server.arguments.latency, self.when_open, action, *arguments)

    def when_open(self, action, *arguments):
        if self.is_open and arguments[0] in self.tokens:
            try:
                action(*arguments)
            except (h2.exceptions.StreamClosedError, h2.exceptions.ProtocolError):
                pass
            self.flush()

    # Answers

    def accept(self, stream, status=200):
        self.server.note("A", self.tokens.pop(stream))
        self.accepted += 1
        self.h2.send_headers(stream, [(b":status", str(status).encode())], end_stream=True)

    def refuse(self, stream, status, reason, retry_after=0):
        self.tokens.pop(stream)
        headers = [(b":status", str(status).encode())]
        if retry_after:
            headers.append((b"retry-after", str(retry_after).encode()))
        self.h2.send_headers(stream, headers, end_stream=not reason)
        if reason:
            self.h2.send_data(stream, json.dumps({"reason": reason}).encode(), end_stream=True)

    def cut(self, stream, status, end):
        """The status is all that arrives of the answer. A reset follows, or nothing."""
        token = self.tokens.pop(stream)
        if status < 300:
            self.server.note("A", token)
        self.h2.send_headers(stream, [(b":status", str(status).encode())])
        if end == "reset":
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)

    def reset(self, stream, code):
        self.tokens.pop(stream)
        self.h2.reset_stream(stream, code)

    def without_status(self, stream):
        self.tokens.pop(stream)
        self.h2.send_headers(stream, [(b"apns-id", b"x")], end_stream=True)

    def go_away(self, stream, code, reason):
        """Answers this request, ends the connection, and processes nothing above the request."""
        if not self.is_open:
            return
        self.accept(stream)
        self.h2.close_connection(code, json.dumps({"reason": reason}).encode(), last_stream_id=stream)
        self.end()

    def fail(self, stream, token):
        """Does what the fault says with a request; false when the request is to be accepted."""
        server = self.server
        name = server.name
        if name == "silent":
            return server.chance(server.parameter(0, 1.0))
        if name == "late":
            asyncio.get_event_loop().call_later(
                server.parameter(0, 1.0), self.when_open, self.accept, stream)
            return True
        if name == "status":
            if not server.chance(server.parameter(2, 1.0)):
                return False
            self.later(
                self.refuse, stream, server.parameter(0, 500), server.parameter(1, ""), server.parameter(3, 0))
            return True
        if name == "devices":
            if int(token[:8], 16) % 100 >= 100 * server.parameter(2, 0.2):
                return False
            self.later(self.refuse, stream, server.parameter(0, 500), server.parameter(1, ""))
            return True
        if name == "success":
            self.later(self.accept, stream, server.parameter(0, 201))
            return True
        if name == "reset":
            if not server.chance(server.parameter(1, 1.0)):
                return False
            self.later(self.reset, stream, server.parameter(0, 2))
            return True
        if name == "cut":
            self.later(self.cut, stream, server.parameter(0, 200), server.parameter(1, "reset"))
            return True
        if name == "without-status":
            self.later(self.without_status, stream)
            return True
        if name == "kill":
            # Cuts the connection under all its requests, for a device token that begins like this.
            if not token.startswith(server.parameter(0, "dead")):
                return False
            self.is_open = False
            self.transport.abort()
            return True
        if name == "goaway":
            self.later(self.go_away, stream, server.parameter(0, 0), server.parameter(1, "Shutdown"))
            return True
        return False


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--ready", required=True, help="file for the port")
    parser.add_argument("--log", required=True)
    parser.add_argument("--fault", required=True)
    parser.add_argument("--topic", help="topic whose requests fail; all without it")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--latency", type=float, default=0.02)
    arguments = parser.parse_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments.certificate, arguments.key)
    context.set_alpn_protocols(["h2"])
    server = Server(arguments)
    listening = await asyncio.get_running_loop().create_server(
        lambda: Peer(server), "127.0.0.1", 0, ssl=context)
    with open(arguments.ready, "w") as file:
        file.write(f"{listening.sockets[0].getsockname()[1]}\n")
    # Ends with whoever started it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
