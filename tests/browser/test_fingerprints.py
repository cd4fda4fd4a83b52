"""Every page in three widths and two themes, compared with how it looked when a person last accepted it.

What is compared is a fingerprint: the picture in a few grey squares, coarse enough for other fonts, other numbers and another
Chromium, fine enough for a part that has moved, vanished or lost its colours. `scripts/accept-looks` accepts what is there now.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Site
from tests.browser.places import PATHS, address

ACCEPTED = Path(__file__).parent / "accepted_looks.json"
COLUMNS, ROWS = 16, 10
MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 1.2, 9
"""Of 16 shades of grey: on the average of all squares, and of a single one."""
_SIZES = ((390, 844), (1280, 800), (1920, 1080))
_FINGERPRINT = """async ([picture, columns, rows]) => {
  const bytes = Uint8Array.from(atob(picture), (char) => char.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(columns, rows).getContext("2d", { willReadFrequently: true });
  canvas.imageSmoothingQuality = "high";
  canvas.drawImage(bitmap, 0, 0, columns, rows);
  const data = canvas.getImageData(0, 0, columns, rows).data;
  let text = "";
  for (let at = 0; at < data.length; at += 4) {
    text += Math.round((0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2]) / 17).toString(16);
  }
  return text;
}"""


def differences(one: str, other: str) -> tuple[float, int]:
    """The mean and the largest difference of two fingerprints; all shades if they have different sizes."""
    if len(one) != len(other) or not one:
        return 16.0, 16
    found = [abs(int(a, 16) - int(b, 16)) for a, b in zip(one, other, strict=True)]
    return sum(found) / len(found), max(found)


def fingerprints(page: Page, site: Site, name: str) -> dict[str, str]:
    page.emulate_media(reduced_motion="reduce")
    page.goto(address(site, PATHS[name]))
    page.wait_for_load_state("networkidle")
    found = {}
    for width, height in _SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            picture = base64.b64encode(page.screenshot()).decode()
            found[f"{name} {width} {scheme}"] = page.evaluate(_FINGERPRINT, [picture, COLUMNS, ROWS])
    return found


@pytest.mark.chaos
@pytest.mark.parametrize("name", PATHS)
def test_it_looks_as_accepted(page: Page, site: Site, name: str) -> None:
    accepted = json.loads(ACCEPTED.read_text()) if ACCEPTED.exists() else {}
    found = fingerprints(page, site, name)
    if os.environ.get("ARCHIVER_ACCEPT_LOOKS"):
        merged = {key: value for key, value in accepted.items() if key.split()[0] in PATHS} | found
        ACCEPTED.write_text(json.dumps(merged, indent=0, sort_keys=True) + "\n")
        return
    changed = {}
    for key, look in found.items():
        mean, largest = differences(look, accepted.get(key, ""))
        if mean > MEAN_DIFFERENCE or largest > LARGEST_DIFFERENCE:
            changed[key] = (round(mean, 2), largest)
    assert changed == {}, "look at artefacts/, then run scripts/accept-looks if it is as it should be"


def test_the_comparison_finds_what_moved_and_forgives_what_is_small() -> None:
    light = "f" * (COLUMNS * ROWS)
    assert differences(light, light) == (0, 0)
    mean, largest = differences(light, "5" + light[1:])
    assert mean < MEAN_DIFFERENCE
    assert largest > LARGEST_DIFFERENCE
    assert differences(light, "d" * len(light))[0] > MEAN_DIFFERENCE
    assert differences(light, "") == (16.0, 16)
