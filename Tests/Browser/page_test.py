"""Drives the page of the device simulator in Chromium. Prints a line for each check; exit status 1 when one fails.

Usage: page_test.py BASE-URL SCREENSHOT-DIRECTORY [CHECK...]

The simulator must be empty and take any well-formed provider token. It is reset between checks. Needs Playwright,
axe and Chromium; `Deploy/install-dependencies.sh --test` installs them. CHROMIUM names another browser.
"""

import os
import sys
import time
import traceback
import urllib.error

from playwright.sync_api import expect, sync_playwright

import device_checks
import page_checks
from support import APP, BUNDLE, Browser, Simulator, Skipped


def main():
    base, directory, *names = sys.argv[1:]
    base = base.rstrip("/")
    os.makedirs(directory, exist_ok=True)
    checks = {name.removeprefix("check_"): value for module in (page_checks, device_checks)
              for name, value in vars(module).items() if name.startswith("check_")}
    unknown = [name for name in names if name not in checks]
    if unknown:
        sys.exit(f"no such checks: {', '.join(unknown)}; known: {', '.join(checks)}")
    failed = 0
    simulator = Simulator(base)
    # Long enough for a busy machine; conditions that hold cost no time.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = Browser(playwright, base, directory)
        for name, check in checks.items():
            if names and name not in names:
                continue
            browser.faults = []
            started = time.monotonic()
            try:
                simulator.reset()
                if name not in ("hint", "new_device"):
                    simulator.call("PUT", f"/api/apps/{BUNDLE}", APP)
                check(browser, simulator)
                assert not browser.faults, "; ".join(browser.faults[:5])
                print(f"ok   {name} ({time.monotonic() - started:.1f} s)", flush=True)
            except Skipped as reason:
                print(f"skip {name}: {reason}", flush=True)
            except Exception as error:
                failed += 1
                if browser.contexts and browser.contexts[-1].pages:
                    browser.shot(browser.contexts[-1].pages[0], f"failed-{name}")
                if isinstance(error, urllib.error.HTTPError):
                    error.msg += f": {error.read().decode(errors='replace')}"
                place = traceback.extract_tb(error.__traceback__)
                line = next((frame.lineno for frame in reversed(place) if frame.name.startswith("check_")), place[-1].lineno)
                text = str(error).split("Aria snapshot")[0].strip()
                print(f"FAIL {name}, line {line}: {text}", flush=True)
            browser.close_pages()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
