#!/usr/bin/env python3
"""Makes mistakes mechanically in the workers that ship, and counts which of them the simulation or the unit tests notice.

Kinds of mistakes: a comparison is flipped, `&&` and `||` or `min` and `max` are swapped, a condition is negated, a branch
or a guard is removed, the statement of a call is removed, a whole number is one more or one less. A sample that depends
on --seed alone is compiled into one copy; a mistake that doesn't compile makes way for the next one. The simulation comes
first, in each mode, then the unit tests of the module. A survivor is a gap of both, or a mistake that changes no
behaviour. survivors.md has the reasons of reviewed survivors; the exit status is 1 when a survivor has none.
"""

import argparse
import collections
import os
import random
import re
import sys

import schemata
from schemata import MODES, TESTS, fail, short

# Files that get mistakes: the machines, and the shells around them.
SAMPLED_FILES = re.compile(
    r"(StreamScheduling|DeliveryCore|Gateway/Shard|Gateway/Intake|HTTP2/Pool|HTTP2/Client/Session|Kafka/Consumer)/")
# Checks, counters and what has no effect but on time.
SKIPPED_FILES = re.compile(
    r"(\+Invariants|\+Checks|\+Observation|Milestones|Counters|Prefetch|JobMetrics|PoolFigures|PoolReport|PoolSnapshot"
    r"|\+Trace|\+Log|ConsumerProbe|OwnMemory)\.swift$")
SKIPPED_LINES = re.compile(
    r"milestones|counters\.|precondition|assert|fatalError|prefetch|reserveCapacity|\.allocate\(|\bnote\(|\blog(ger)?\.|metrics\.|\btrace")
SKIPPED_BODIES = re.compile(r"var description\b|deinit|func (problem|\w+Invariants?)\b")

FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SWAPPED = {"&&": "||", "||": "&&"}
KEYWORDS = {
    "if", "guard", "while", "for", "switch", "return", "case", "default", "let", "var", "func", "init", "throw", "try",
    "precondition", "assert", "super", "defer", "repeat", "else", "do", "import", "subscript", "where", "in",
}


class Mistake:
    def __init__(self, file, begin, end, kind, mutated, change, shape="expression"):
        self.file, self.begin, self.end = file, begin, end
        self.kind, self.mutated, self.change, self.shape = kind, mutated, change, shape
        self.line = 0
        self.verdict = None
        # Name of the function or property, and the change without quoted code: the mistake's key in survivors.md.
        self.function, self.brief = "", ""

    @property
    def key(self):
        return self.file, self.function, self.kind, self.brief


def mask(text):
    """The text with blanks for comments and string literals; positions stay."""
    out = list(text)
    index = 0
    while index < len(text):
        if text.startswith("//", index):
            end = text.find("\n", index)
            end = len(text) if end < 0 else end
        elif text.startswith("/*", index):
            end = text.index("*/", index) + 2
        elif text.startswith('"""', index):
            end = text.index('"""', index + 3) + 3
        elif text[index] == '"':
            end, depth = index + 1, 0
            while depth or text[end] != '"':
                if text[end] == "\\":
                    if text[end + 1] == "(":
                        depth += 1
                    end += 1
                elif depth:
                    depth += (text[end] == "(") - (text[end] == ")")
                end += 1
            end += 1
        else:
            index += 1
            continue
        for at in range(index, end):
            if out[at] != "\n":
                out[at] = " "
        index = end
    return "".join(out)


OPEN, CLOSE = "([{", ")]}"


def matching(code, begin):
    """Behind the bracket that closes the one at `begin`."""
    depth = 0
    for index in range(begin, len(code)):
        depth += (code[index] in OPEN) - (code[index] in CLOSE)
        if depth == 0:
            return index + 1
    return len(code)


def find_at_top(code, begin, test):
    """The first position from `begin` on, outside of brackets, for which the test holds; None at a closing bracket."""
    index = begin
    while index < len(code):
        if test(index):
            return index
        if code[index] in CLOSE:
            return None
        index = matching(code, index) if code[index] in OPEN else index + 1
    return None


def bodies(code):
    """The bodies of functions and computed properties: where they are, and their names."""
    found = []
    declared = re.compile(
        r"\b(?:func\s+[^\s(<]+|init[?!]?|subscript|deinit)(?=\s*[(<{])|\bvar\s+\w+\s*:\s*[^={\n]+?(?=\s*\{)")
    for match in declared.finditer(code):
        if code[match.start() - 1] == ".":
            continue
        begin = find_at_top(code, match.end(), lambda at: code[at] == "{" or code.startswith("\n\n", at))
        if begin is not None and code[begin] == "{" and not SKIPPED_BODIES.match(match.group(0)):
            name = re.match(r"(?:func\s+|var\s+)?([^\s(<?!:{]+)", match.group(0)).group(1)
            found.append((begin + 1, matching(code, begin) - 1, name))
    return found


def split(code, begin, end, separator):
    """The parts of [begin, end) between separators that are outside of brackets, without blanks around them."""
    parts = []
    while begin <= end:
        stop = find_at_top(code, begin, lambda at: at >= end or code.startswith(separator, at))
        stop = end if stop is None or stop > end else stop
        part = code[begin:stop]
        if part.strip():
            parts.append((begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())))
        begin = stop + len(separator)
    return parts


def end_of_line_expression(code, begin):
    """Where an expression that begins there ends: with its line, or with the lines that go on with it."""
    at = begin
    while True:
        stop = find_at_top(code, at, lambda at: code[at] in "\n;")
        if stop is None:
            stop = at
            while code[stop] not in CLOSE:
                stop = matching(code, stop) if code[stop] in OPEN else stop + 1
            return stop
        rest = code[stop + 1:].lstrip()
        if code[stop] == "\n" and re.match(r"(&&|\|\||\?|:|[-+*/<>=!&|]+ |\.\w)", rest):
            at = stop + 1
            continue
        return stop


def conditions(code, begin, end):
    """Each condition of a body: where it is, and the statement that has it."""
    for match in re.compile(r"(?<![.\w])(if|guard|while|where)\b(?=[\s(])").finditer(code, begin, end):
        word = match.group(1)
        if word == "guard":
            stop = find_at_top(code, match.end(), lambda at: re.compile(r"\belse\b").match(code, at))
        else:
            stop = find_at_top(code, match.end(), lambda at: code[at] == "{" or word == "where" and code[at] == ":")
        if stop is None:
            continue
        for number, (first, last) in enumerate(split(code, match.end(), stop, ",")):
            if not re.match(r"(let|var|case|#)\b", code[first:last]):
                yield first, last, word
    values = re.compile(r"\breturn\s+(?=\S)|\b(?:let|var)\s+\w+(?:: Bool)? = ")
    for match in values.finditer(code, begin, end):
        stop = end_of_line_expression(code, match.end())
        if stop is not None and is_boolean(code, match.end(), stop):
            yield match.end(), match.end() + len(code[match.end():stop].rstrip()), "value"
    # A body that is one expression.
    first = begin + len(code[begin:end]) - len(code[begin:end].lstrip())
    last = begin + len(code[begin:end].rstrip())
    word = re.match(r"\w*", code[first:last]).group(0)
    if word not in KEYWORDS and end_of_line_expression(code, first) >= last and is_boolean(code, first, last):
        yield first, last, "value"


def is_boolean(code, begin, end):
    """An expression whose outermost operators say that its value is true or false."""
    top = []
    at = begin
    while at < end:
        if code[at] in OPEN:
            at = matching(code, at)
            continue
        top.append(code[at])
        at += 1
    text = "".join(top)
    if " ? " in text or "\n" in text.strip() and " ?" in text:
        return False
    return bool(re.search(r"\s(<|<=|>|>=|==|!=|&&|\|\|)\s", text)) or bool(re.match(r"!\w", text))


def operators(code, begin, end):
    return re.compile(r"(?<=\s)(<|<=|>|>=|==|!=|&&|\|\|)(?=\s)").finditer(code, begin, end)


def calls(code, begin, end):
    """Statements that are one call."""
    name = r"[A-Za-z_]\w*(?:(?:\.|[!?]\.)\w+|\[[^\[\]\n]*\]|[!?](?=\.))*"
    start = re.compile(rf"(?:(?<=\n)[ ]+|(?<=[{{:] )|(?<=; ))({name})\(")
    for match in start.finditer(code, begin, end):
        first = match.start(1)
        if re.split(r"\W", match.group(1))[0] in KEYWORDS:
            continue
        before = code[:first].rstrip()
        opened = code[:first].rstrip(" ").endswith("\n")
        if opened and (before[-1] in ",=([+?&|<>-" or before.endswith(" in") or before.endswith("return")):
            continue
        if not opened and before.endswith(":") and not re.search(
                r"^\s*(case\b.*|default):$", before[before.rfind("\n") + 1:]):
            continue
        last = matching(code, match.end() - 1)
        rest = re.match(r"[^\n;]*", code[last:]).group(0).strip()
        following = code[last:].lstrip()
        if rest not in ("", "}") and not rest.startswith("} else") or following.startswith((".", "?", "&&", "||", "{", ":")):
            continue
        yield first, last


def names(code):
    found = re.findall(r"(?<![\w$])(?:[A-Za-z_]\w*|\$\d+|\d+)", code)
    return [name for name in found if name not in ("try", "await", "self", "Self", "true", "false", "nil", "as", "is")] or ["-"]


def first_name(code):
    return names(code)[0]


def last_name(code):
    return names(code)[-1]


def mistakes_of(file, text):
    code = mask(text)
    found = {}
    checks = [(match.end(), matching(code, match.end() - 1))
              for match in re.finditer(r"\b(?:precondition|assert)\(", code)]

    def add(begin, end, kind, mutated, change, brief, shape="expression"):
        first = text.rfind("\n", 0, begin) + 1
        lines = text[first:text.find("\n", end - 1)]
        if SKIPPED_LINES.search(lines) and kind != "condition" or re.match(r"\s*case\b", lines) and kind == "number":
            return
        if any(start <= begin < stop for start, stop in checks):
            return
        mistake = Mistake(file, begin, end, kind, mutated, change, shape)
        mistake.line = text.count("\n", 0, begin) + 1
        mistake.function, mistake.brief = function, brief
        found.setdefault((begin, end, mutated), mistake)

    for begin, end, function in bodies(code):
        for first, last, word in conditions(code, begin, end):
            whole, name = text[first:last], first_name(code[first:last])
            for operator in operators(code, first, last):
                old = operator.group(1)
                new = FLIPPED.get(old) or SWAPPED[old]
                add(first, last, "comparison" if old in FLIPPED else "connective",
                    text[first:operator.start()] + new + text[operator.end():last],
                    f"{old} is {new} in: {short(whole)}", f"{old} is {new} behind {last_name(code[first:operator.start()])}")
            if word in ("if", "guard", "while", "where"):
                add(first, last, "condition", f"!({whole})", f"negated: {short(whole)}", f"negated at {name}")
            if word == "if":
                add(first, last, "branch", f"({whole}) && false", f"never: if {short(whole)}", f"never if {name}")
            elif word in ("guard", "where"):
                add(first, last, "branch", f"({whole}) || true", f"no {word}: {short(whole)}", f"no {word} {name}")
        for match in re.compile(r"(?<![.\w])(?:Swift\.)?(min|max)\(").finditer(code, begin, end):
            last = matching(code, match.end() - 1)
            whole = text[match.start():last]
            other = "max" if match.group(1) == "min" else "min"
            add(match.start(), last, "minmax", whole.replace(match.group(1), other, 1), f"{other} in: {short(whole)}",
                f"{other} of {first_name(code[match.end():last])}")
        for match in re.compile(r"(?<![\w.$])(\d[\d_]*)(?![\w.]|\s*\.\.)").finditer(code, begin, end):
            value = int(match.group(1).replace("_", ""))
            line = text[text.rfind("\n", 0, match.start()) + 1:text.find("\n", match.start())]
            for other in (value + 1, value - 1):
                if other >= 0:
                    add(*match.span(1), "number", str(other), f"{match.group(1)} is {other} in: {short(line)}",
                        f"{match.group(1)} is {other}")
        for first, last in calls(code, begin, end):
            add(first, last, "call", "", f"removed: {short(text[first:last])}",
                f"removed {re.match(r'[^(]*', code[first:last]).group(0)}", "statement")
    return list(found.values())


def render(text, mistakes):
    """The file with its mistakes; they are nested or apart. `/*<N*/` and `/*N>*/` mark where each is."""
    def part(begin, end, inner):
        out, at = [], begin
        inner = sorted(inner, key=lambda one: (one[1].begin, -one[1].end))
        while inner:
            number, first = inner[0]
            same = [one for one in inner if (one[1].begin, one[1].end) == (first.begin, first.end)]
            nested = [one for one in inner[len(same):] if one[1].begin < first.end]
            inner = inner[len(same) + len(nested):]
            out.append(text[at:first.begin])
            whole = part(first.begin, first.end, nested)
            for number, one in same:
                make = schemata.expression if one.shape == "expression" else schemata.statement
                whole = f"/*<{number}*/{make(number, whole, one.mutated)}/*{number}>*/"
            out.append(whole)
            at = first.end
        out.append(text[at:end])
        return "".join(out)

    return part(0, len(text), mistakes)


def crosses(mistake, chosen):
    """It overlaps another one without one being in the other."""
    return any(
        one.begin < mistake.begin < one.end < mistake.end or mistake.begin < one.begin < mistake.end < one.end
        for one in chosen)


def blame(line, column, text, numbers):
    """The numbers of the mistakes of a file that an error message is about."""
    at = sum(len(one) for one in text.splitlines(True)[:line - 1]) + column - 1
    spans = [(text.index(f"/*<{number}*/"), text.index(f"/*{number}>*/"), number) for number in numbers]
    around = [(end - begin, number) for begin, end, number in spans if begin <= at <= end]
    if around:
        return {min(around)[1]}
    touched = {
        number for begin, end, number in spans
        if text.count("\n", 0, begin) + 1 <= line <= text.count("\n", 0, end) + 1}
    if touched:
        return touched
    code = mask(text)
    body = [(end - begin, begin, end) for begin, end, _ in bodies(code) if begin <= at <= end + 1]
    if not body:
        return set()
    _, first, last = min(body)
    return {number for begin, _, number in spans if first <= begin <= last}


def compile_sample(copy, files, pool, count, build):
    """As many mistakes as asked for that compile together, by their numbers; and how many did not compile."""
    pool = list(pool)
    chosen, dropped, number = {}, 0, 0
    while True:
        while len(chosen) < count and pool:
            mistake = pool.pop(0)
            if not crosses(mistake, [one for one in chosen.values() if one.file == mistake.file]):
                number += 1
                chosen[number] = mistake
        rendered = {
            name: render(text, [(number, one) for number, one in chosen.items() if one.file == name])
            for name, text in files.items()}
        copy.write(rendered)
        done = build()
        if done.returncode == 0:
            return chosen, dropped
        culprits = set()
        errors = re.findall(r"^(\S+?):(\d+):(\d+): error: ", done.stdout, re.MULTILINE)
        for path, line, column in errors:
            name = copy.source(path)
            if name in rendered:
                numbers = [number for number, one in chosen.items() if one.file == name]
                culprits |= blame(int(line), int(column), rendered[name], numbers)
        if not culprits:
            print(done.stdout[-4000:])
            fail("the mutated workers do not compile, for no reason that is known")
        print(f"{len(culprits)} mistakes don't compile", flush=True)
        for culprit in culprits:
            chosen.pop(culprit)
        dropped += len(culprits)


def read_survivors(text):
    """Reasons of reviewed survivors by their keys. A heading names the file; an item has the function, the kind and the
    change, and then the reason, which may take further lines."""
    reasons, file = {}, None
    text = re.sub(r"\n {2,}", " ", text)
    for line in text.splitlines():
        heading = re.fullmatch(r"## `(\S+)`", line)
        item = re.fullmatch(r"- `([^`]+)`, (\w+), `([^`]+)`: (.*)", line)
        if heading:
            file = heading.group(1)
        elif item and file:
            reasons[(file, *item.group(1, 2, 3))] = item.group(4).strip()
        elif line.startswith(("- ", "## ")):
            fail(f"survivors.md: this line names no survivor: {line}")
    return reasons


def item(mistake):
    return f"- `{mistake.function}`, {mistake.kind}, `{mistake.brief}`:"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="mistakes to try; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample")
    parser.add_argument("--file", default="", help="only files whose names match this pattern")
    schemata.add_arguments(parser, seeds=60)
    parser.add_argument("--list", action="store_true", help="only say what there is to try")
    parser.add_argument("--no-tests", action="store_true", help="without the unit tests")
    arguments = parser.parse_args()

    files = schemata.read_sources()
    everything = []
    for name in sorted(files):
        if SAMPLED_FILES.match(name) and not SKIPPED_FILES.search(name) and re.search(arguments.file, name):
            everything += mistakes_of(name, files[name])
    pool = list(everything)
    random.Random(arguments.seed).shuffle(pool)
    if arguments.list:
        for mistake in pool[:arguments.sample or None]:
            print(f"{mistake.file}:{mistake.line}: {mistake.kind}, {mistake.change}")
        return print(f"{len(everything)} mistakes: {counted(everything)}")

    with open(os.path.join(schemata.ROOT, "Tests", "Simulation", "survivors.md")) as file:
        reasons = read_survivors(file.read())
    copy = schemata.Copy("mechanical", arguments.swift)
    chosen, dropped = compile_sample(
        copy, files, pool, arguments.sample or len(pool), lambda: copy.build_simulation(captures=True))
    print(f"{len(everything)} mistakes, {len(chosen)} in the sample, {dropped} of others did not compile", flush=True)

    def simulate(number):
        mode, what, seed = copy.simulate_modes(number, MODES, arguments)
        return f"{mode}, seed {seed}: {what}" if what else None

    def test(number):
        modules = TESTS.get(chosen[number].file.split("/")[0])
        what = modules and copy.run_tests(number, modules, arguments.test_seconds)
        return f"tests: {what}" if what else None

    what = simulate(0)
    if what:
        fail(f"without a mistake: {what}")
    with schemata.workers(arguments.jobs) as threads:
        for done, (mistake, verdict) in enumerate(
                zip(chosen.values(), threads.map(simulate, chosen)), 1):
            mistake.verdict = verdict
            print(f"{done}/{len(chosen)} {mistake.file}:{mistake.line} {mistake.kind}: {short(verdict or 'not caught')}",
                  flush=True)
        left = [number for number, mistake in chosen.items() if mistake.verdict is None]
        simulated = len(chosen) - len(left)
        if left and not arguments.no_tests:
            copy.build_tests()
            for modules in sorted(set(TESTS.values())):
                what = copy.run_tests(0, modules, arguments.test_seconds)
                if what:
                    fail(f"without a mistake: {what}")
            for number, verdict in zip(left, threads.map(test, left)):
                chosen[number].verdict = verdict
                print(f"{chosen[number].file}:{chosen[number].line}: {verdict or 'not caught'}", flush=True)

    survivors = [mistake for mistake in chosen.values() if mistake.verdict is None]
    unexplained = [mistake for mistake in survivors if not reasons.get(mistake.key)]
    print(f"\nsurvivors without a reason in survivors.md, {len(unexplained)}:")
    heading = None
    for mistake in sorted(unexplained, key=lambda one: (one.file, one.line)):
        if mistake.file != heading:
            print(f"\n## `{mistake.file}`\n")
            heading = mistake.file
        print(f"{item(mistake)} line {mistake.line}, {mistake.change}")
    known = {mistake.key for mistake in everything}
    for key in reasons:
        if not arguments.file and key not in known:
            print(f"survivors.md: no such mistake any more: {', '.join(key)}")
    tested = len(left) - len(survivors)
    print(f"\ngenerated {len(everything)}, sampled {len(chosen)}, did not compile {dropped}")
    print(f"caught by the simulation alone {share(simulated, chosen)}, by the unit tests {share(tested, chosen)}, "
          f"survivors with a reason {share(len(survivors) - len(unexplained), chosen)}, "
          f"without {share(len(unexplained), chosen)}")
    for kind, ones in sorted(by_kind(chosen.values()).items()):
        caught = sum(one.verdict is not None for one in ones)
        print(f"  {kind}: {caught} of {len(ones)} caught")
    for module, ones in sorted(by_module(chosen.values()).items()):
        caught = sum(one.verdict is not None for one in ones)
        print(f"  {module}: {caught} of {len(ones)} caught")
    if unexplained:
        sys.exit(1)


def share(count, chosen):
    return f"{count} ({100 * count / max(1, len(chosen)):.0f} %)"


def by_kind(mistakes):
    kinds = collections.defaultdict(list)
    for mistake in mistakes:
        kinds[mistake.kind].append(mistake)
    return kinds


def by_module(mistakes):
    modules = collections.defaultdict(list)
    for mistake in mistakes:
        modules[os.path.dirname(mistake.file)].append(mistake)
    return modules


def counted(mistakes):
    return ", ".join(f"{kind} {len(ones)}" for kind, ones in sorted(by_kind(mistakes).items()))


if __name__ == "__main__":
    main()
