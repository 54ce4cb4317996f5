#!/usr/bin/env python3
"""Holds documents against the schemas of this directory.

    validate.py check              the schemas; every example of asyncapi.yaml, and every job that a golden record of
                                   examples stands for, its timeline of faults, its apps and its scenario, against their schemas
    validate.py answers            answers of the simulator's API against simulator.openapi.yaml, one each input line:
                                   method, path of the document, status, type, body in hexadecimal, parted by blanks;
                                   one line each: "valid" or why not
    validate.py openapi            simulator.openapi.yaml as JSON
    validate.py documents SCHEMA   one document per input line, in hexadecimal; one line each: "valid" or why not
    validate.py yaml SCHEMA        a YAML document of the input; "valid" or why not
    validate.py asyncapi           asyncapi.yaml as JSON, references left as they are

SCHEMA is job, outcome, dead-letter, faults, simulator-apps, bench-scenario or bench-result. Needs jsonschema 4.10 or later
and PyYAML (on Debian: apt-get install python3-jsonschema python3-yaml). Exit status: 0, 1 when a check failed, 3 when a module is missing.
"""

import json
import re
import sys
from pathlib import Path

try:
    import yaml
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import ValidationError
except ImportError as error:
    print(f"{error}. On Debian: apt-get install python3-jsonschema python3-yaml", file=sys.stderr)
    sys.exit(3)

DIRECTORY = Path(__file__).resolve().parent
NAMES = ["job", "outcome", "dead-letter", "faults", "simulator-apps", "bench-scenario", "bench-result"]


def load(name):
    return json.loads((DIRECTORY / f"{name}.schema.json").read_text())


def ecma_pattern(validator, pattern, instance, schema):
    """As JSON Schema has it: in ECMA-262 a $ matches at the very end only, in Python also before a newline."""
    if validator.is_type(instance, "string") and not re.search(re.sub(r"(?<!\\)\$", r"\\Z", pattern), instance):
        yield ValidationError(f"does not match {pattern}")


Validator = validators.extend(Draft202012Validator, {"pattern": ecma_pattern})


class Document(dict):
    """A JSON object that remembers whether a member was there twice."""

    doubled = None

    def __init__(self, pairs):
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.doubled = next((name for name in names if names.count(name) > 1), None)


def parse(data):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads(data.decode("utf-8"), object_pairs_hook=Document, parse_constant=refuse)


def verdict(validator, data):
    try:
        document = parse(data)
    except ValueError as error:
        return f"json: {error}"
    if isinstance(document, Document) and document.doubled is not None:
        return f"doubled: {document.doubled}"
    error = next(validator.iter_errors(document), None)
    if error is None:
        return "valid"
    return f"schema: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def validator(name):
    """A validator of a schema, with what it refers to in other files in place."""
    return Validator(resolved(load(name)))


def resolved(node):
    """A copy of a schema with the parts of other files that it names in their place."""
    if isinstance(node, list):
        return [resolved(child) for child in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        return inlined(node, None)
    return {key: resolved(child) for key, child in node.items()}


def documents(name):
    judge = validator(name)
    for line in sys.stdin:
        print(verdict(judge, bytes.fromhex(line.strip())).replace("\n", " "))


def yaml_document(name):
    document = named(yaml.safe_load(sys.stdin))
    error = next(validator(name).iter_errors(document), None)
    print("valid" if error is None else f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")


def asyncapi():
    return yaml.safe_load((DIRECTORY / "asyncapi.yaml").read_text())


def inlined(node, document):
    """A copy of `node`, which is part of `document`, with what its references name in their place."""
    if isinstance(node, list):
        return [inlined(child, document) for child in node]
    if not isinstance(node, dict):
        return node
    copy = {key: inlined(child, document) for key, child in node.items() if key not in ("$ref", "$id", "$schema")}
    if not isinstance(node.get("$ref"), str):
        return copy
    file, _, pointer = node["$ref"].partition("#")
    target = document if file == "" else json.loads((DIRECTORY / file).read_text())
    part = target
    for step in pointer.split("/")[1:]:
        part = part[step]
    return {"allOf": [inlined(part, target), copy]} if copy else inlined(part, target)


def openapi():
    return yaml.safe_load((DIRECTORY / "simulator.openapi.yaml").read_text())


def answer_verdict(api, line):
    """Judges an answer by the schema of its path, method, status and type."""
    method, path, status, kind, body = (line.split(" ") + [""])[:5]
    operation = api["paths"].get(path, {}).get(method.lower())
    if operation is None:
        return f"no operation {method} {path}"
    response = operation["responses"].get(status, operation["responses"]["default"])
    if "$ref" in response:
        response = api["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    if "content" not in response:
        return "valid" if body == "" else f"{status} has no body in the document"
    if kind not in response["content"]:
        return f"{status} has no {kind} in the document"
    if not kind.startswith("application/"):
        return "valid"
    schema = {**response["content"][kind]["schema"], "components": api["components"]}
    text = bytes.fromhex(body)
    parts = text.splitlines() if kind == "application/x-ndjson" else [text]
    validator = Validator(schema)
    return next((found for found in (verdict(validator, part) for part in parts) if found != "valid"), "valid")


def answers():
    api = openapi()
    for line in sys.stdin:
        print(answer_verdict(api, line.strip()).replace("\n", " "))


def named(node):
    """A copy of a YAML tree with texts as names, as JSON has them."""
    if isinstance(node, dict):
        return {str(name): named(child) for name, child in node.items()}
    return [named(child) for child in node] if isinstance(node, list) else node


def check():
    failures = []
    for name in NAMES:
        Validator.check_schema(load(name))
    api = asyncapi()
    inlined(api["channels"], api)
    inlined(api["operations"], api)

    examples = 0
    for name, message in api["components"]["messages"].items():
        schemas = {part: inlined(message[part], api) for part in ["headers", "payload"] if part in message}
        for schema in schemas.values():
            Validator.check_schema(schema)
        for example in message["examples"]:
            for part in ["headers", "payload"]:
                if part not in example:
                    continue
                examples += 1
                if part not in schemas:
                    failures.append(f"{name}/{example['name']}: {part} without a schema")
                    continue
                for error in Validator(schemas[part]).iter_errors(example[part]):
                    failures.append(f"{name}/{example['name']}/{part}: {error.message}")
    job = Validator(load("job"))
    for path in sorted((DIRECTORY / "examples").glob("*.json")):
        for record in json.loads(path.read_text())["records"]:
            if "job" not in record["expect"]:
                continue
            examples += 1
            for error in job.iter_errors(record["expect"]["job"]):
                failures.append(f"{path.name}/{record['name']}: {error.message}")
    for name in ["faults", "simulator-apps", "bench-scenario"]:
        examples += 1
        example = named(yaml.safe_load((DIRECTORY / "examples" / f"{name}.yaml").read_text()))
        for error in validator(name).iter_errors(example):
            failures.append(f"{name}.yaml: {'/'.join(map(str, error.absolute_path))}: {error.message}")
    for schema in openapi()["components"]["schemas"].values():
        Validator.check_schema(schema)
    for failure in failures:
        print(failure)
    print(f"{len(NAMES)} schemas, {examples} examples, {len(failures)} failures")
    return 1 if failures else 0


def main():
    match sys.argv[1:]:
        case ["check"]:
            return check()
        case ["documents", name] if name in NAMES:
            return documents(name)
        case ["yaml", name] if name in NAMES:
            return yaml_document(name)
        case ["answers"]:
            return answers()
        case ["openapi"]:
            return print(json.dumps(openapi()))
        case ["asyncapi"]:
            return print(json.dumps(asyncapi()))
    print(__doc__)
    return 64


if __name__ == "__main__":
    sys.exit(main())
