"""The table of panels, for programs that draw or check them. Needs PyYAML."""

import pathlib
import re

import yaml

HERE = pathlib.Path(__file__).resolve().parent
# Letters in selectors of the table, and the dashboard's variables that they stand for.
SELECTORS = {"W": 'job=~"$job", instance=~"$instance"', "A": 'app=~"$app"', "C": 'credential=~"$credential"'}


def load():
    table = yaml.safe_load((HERE / "panels.yaml").read_text())
    for _, panel in panels(table):
        for query in panel["queries"]:
            query["expr"] = re.sub(r"(?<=[{ ])([WAC])(?=[,}])", lambda match: SELECTORS[match[1]], query["expr"])
    return table


def panels(table):
    for row in table["rows"]:
        for panel in row["panels"]:
            yield row["title"], panel


def filled(expression, rate_interval, **variables):
    """A query for Prometheus itself. Variables that aren't given match everything."""
    text = expression.replace("$__rate_interval", rate_interval)
    return re.sub(r"\$(\w+)", lambda match: variables.get(match[1], ".*"), text)
