"""Reads the files text, open and binary of a directory with Prometheus' own parsers, and a decoder that shares no code
with Sluice. Ends with an error when one of them reads other values than MetricsFormatTests wrote."""

import math
import struct
import sys
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_format


def samples(families):
    return {(s.name, tuple(sorted(s.labels.items()))): s for family in families for s in family.samples}


def check(found):
    assert found[("sluice_x_total", (("l", 'q"u\\o\nte'),))].value == 1, found
    assert found[("sluice_x_total", ())].value == 7
    assert found[("sluice_y_seconds", ())].value == 0.5
    assert found[("sluice_z_seconds_bucket", (("app", "news"), ("le", "2.0")))].value == 2
    assert found[("sluice_z_seconds_bucket", (("app", "news"), ("le", "+Inf")))].value == 3
    assert found[("sluice_z_seconds_count", (("app", "news"),))].value == 3


def fields(data):
    """Yields number and value of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        elif kind == 1:
            yield tag >> 3, struct.unpack("<d", data[at:at + 8])[0]
            at += 8
        elif kind == 2:
            length = varint()
            yield tag >> 3, data[at:at + length]
            at += length
        else:
            raise ValueError(f"wire type {kind}")


def delimited(data):
    at = 0
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield data[at:at + length]
        at += length


def signed(value):
    return (value >> 1) ^ -(value & 1)


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def check_binary(data):
    families = {dict(fields(each))[1].decode(): list(fields(each)) for each in delimited(data)}
    assert set(families) == {"sluice_x_total", "sluice_y_seconds", "sluice_z_seconds"}, families.keys()
    assert dict(families["sluice_x_total"])[3] == 0 and dict(families["sluice_z_seconds"])[3] == 4
    first = dict(fields(next(value for number, value in families["sluice_x_total"] if number == 4)))
    assert dict(fields(first[1])) == {1: b"l", 2: b'q"u\\o\nte'} and dict(fields(first[3]))[1] == 1
    histogram = list(fields(dict(fields(dict(families["sluice_z_seconds"])[4]))[7]))
    plain = dict(histogram)
    assert plain[1] == 3 and plain[2] == 91.8 and signed(plain[5]) == 3 and plain[7] == 0
    assert [dict(fields(value))[1] for number, value in histogram if number == 3] == [1, 1, 2, 2, 3]
    # Native buckets: bucket n is above 2^((n-1)/8) and at most 2^(n/8).
    at, buckets = 0, []
    for span in (dict(fields(value)) for number, value in histogram if number == 12):
        at += signed(span[1])
        buckets += range(at, at + span[2])
        at += span[2]
    count, counts = 0, []
    for delta in varints(plain[13]):
        count += signed(delta)
        counts.append(count)
    assert counts == [1, 1, 1], counts
    assert buckets == [math.ceil(8 * math.log2(value)) for value in (0.3, 1.5, 90)], buckets
    exemplar = next(dict(fields(value))[3] for number, value in histogram if number == 3 and 3 in dict(fields(value)))
    assert dict(fields(exemplar))[2] == 1.5


directory = Path(sys.argv[1])
check(samples(text_format((directory / "text").read_text())))
found = samples(open_metrics((directory / "open").read_text()))
check(found)
bucket = found[("sluice_z_seconds_bucket", (("app", "news"), ("le", "2.0")))]
assert bucket.exemplar.labels == {"trace_id": "00000000000000ab0000000000000001"}, bucket
check_binary((directory / "binary").read_bytes())
