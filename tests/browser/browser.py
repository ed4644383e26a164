"""Chromium, driven by a test: what a person sees and does."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains

PATIENCE_S = 180.0  # limit of a wait for a condition: detects that it never holds, on a busy machine too
WIDE = (1360, 860)
NARROW = (360, 740)

# Texts whose contrast with what is behind them is less than WCAG 2.2 AA demands: 4.5, of large ones 3.
_CONTRAST = """
const canvas = document.createElement("canvas"), pen = canvas.getContext("2d", {willReadFrequently: true});
canvas.width = canvas.height = 1;
function rgba(colour) {
  pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}
function over(front, back) { return [0, 1, 2].map((i) => front[i] * front[3] + back[i] * (1 - front[3])).concat(1); }
function behind(element) {
  const layers = [];
  for (let e = element; e; e = e.parentElement) {
    layers.push(rgba(getComputedStyle(e).backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  return layers.reduceRight((back, layer) => over(layer, back), [255, 255, 255, 1]);
}
function luminance(c) {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = c.slice(0, 3).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const found = new Map();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement, style = getComputedStyle(element);
  if (!node.data.trim() || !element.getClientRects().length || style.visibility === "hidden") continue;
  if (element.closest("#graph, title, .skip")) continue;
  const back = behind(element), text = element.closest("svg") ? style.fill : style.color;
  const [a, b] = [luminance(over(rgba(text), back)), luminance(back)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) found.set(element.className + ": " + node.data.trim().slice(0, 40), ratio.toFixed(2));
}
return Object.fromEntries(found);
"""

# Elements that reach beyond the right edge of the window although nothing around them scrolls or clips.
_OVERFLOW = """
const edge = document.documentElement.clientWidth;
const inside = (element) => {
  const styles = [];
  for (let e = element; e; e = e.parentElement) styles.push(getComputedStyle(e).overflowX);
  return styles.some((style) => /auto|scroll|hidden|clip/.test(style));
};
const wide = [...document.querySelectorAll("main *, header *")]
  .filter((e) => e.getBoundingClientRect().right > edge + 1 && e.getClientRects().length && !inside(e));
return [document.documentElement.scrollWidth - edge, wide.map((e) => e.tagName + "." + e.className).slice(0, 5)];
"""


class Browser:
    """One window. `base` is the address of the web UI."""

    def __init__(self, program: str, driver: str, directory: Path) -> None:
        options = ChromeOptions()
        options.binary_location = program
        for argument in (
            "--headless=new",
            "--no-sandbox",  # Chromium's own needs a user that is not root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--force-prefers-reduced-motion",
            "--hide-scrollbars",
            f"--user-data-dir={directory}",
            "--window-size={},{}".format(*WIDE),
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=Service(driver))
        self.base = ""

    def close(self) -> None:
        self.driver.quit()

    def reset(self) -> None:
        """A new visitor with a wide window who prefers light colours."""
        self.driver.delete_all_cookies()
        self.resize(*WIDE)
        self.prefer("light")
        self.problems()

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    def go_live(self) -> None:
        """Waits until the page is connected with the server."""
        self.wait(lambda: self.text("#live-text") == "live")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """Of the first element, as it is displayed; empty without one, or if it is hidden."""
        script = "const e = document.querySelector(arguments[0]); return e?.checkVisibility() ? e.innerText : ''"
        return str(self.js(script, selector)).strip()

    def count(self, selector: str) -> int:
        return int(self.js("return document.querySelectorAll(arguments[0]).length", selector))

    def focused(self, wanted: str) -> bool:
        return bool(self.js("return document.activeElement.matches(arguments[0])", wanted))

    def press(self, *keys: str) -> None:
        """Keys, one after the other, to whatever has the focus."""
        chain = ActionChains(self.driver, duration=0)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def log_in(self, token: str) -> None:
        """By keyboard. Keys that come before the field has the focus are lost."""
        self.open("/login")
        self.wait(lambda: self.focused("[name=token]"))
        self.press(token)
        self.wait(lambda: self.js("return document.activeElement.value") == token)
        self.press("\ue007")  # Enter

    def point_at(self, selector: str) -> None:
        ActionChains(self.driver).move_to_element(self.driver.find_element("css selector", selector)).perform()

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s; the page shows: {self.text('main')[:2000]}"
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def problems(self) -> list[str]:
        """What the browser complained about since the last call: errors of scripts, things that the policy blocked."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [json.dumps(entry) for entry in entries if entry["level"] == "SEVERE"]

    def low_contrasts(self) -> dict[str, str]:
        return dict(self.js(_CONTRAST))

    def overflow(self) -> list[Any]:
        """By how many pixels the page is too wide, and what is."""
        return list(self.js(_OVERFLOW))

    def picture(self, name: str, height: int | None = None) -> None:
        """For the documentation, when the environment asks for it. `height`: of the picture, if not the window's."""
        if "SCREENSHOTS" in os.environ:
            if height is not None:
                self.resize(self.js("return innerWidth"), height)
            found = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            target = Path(os.environ["SCREENSHOTS"])
            target.mkdir(parents=True, exist_ok=True)
            (target / f"{name}.png").write_bytes(base64.b64decode(found["data"]))
