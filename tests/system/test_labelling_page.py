"""A person labels golden frames in a real browser, by mouse and keyboard, and the site leaves the shadow."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud.console.desk import CAME_BY
from cloud.labels.teacher import Teacher
from fovea.core.routing import Tier
from tests.fakes import FakeDetector
from tests.system.browser import Page, browsing
from tests.system.service_process import FOVEA, WAIT_S
from tests.unit.hard_cases import LABELS, hard_case, tier_answer
from tests.unit.labelled_cases import stores_in

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
BOX = (4.0, 5.0, 20.25, 30.5)
CONFIG = "store: {folder: kept}\ngolden: {frames: 3, enough: 2}\n"


def ran(folder: Path, *words: str) -> str:
    command = [str(FOVEA), *words, "--config", str(folder / "cloud.yaml")]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_S * 2).stdout


@contextmanager
def page_of(folder: Path) -> Iterator[str]:
    """The URL that `fovea golden label` prints; it ends when it is told to."""
    process = subprocess.Popen(
        [str(FOVEA), "golden", "label", "--by", "ada", "--config", str(folder / "cloud.yaml")],
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        yield next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait(WAIT_S)


async def drag_in_frame(page: Page, box: tuple[float, float, float, float]) -> None:
    """Draws a box that is given in px of the frame."""
    x1, y1, x2, y2 = await page.value(
        "(() => { const { left, top } = canvas.getBoundingClientRect(); "
        f"const [a, b, c, d] = canvas.view.toCanvas({list(box)}); "
        "return [a + left, b + top, c + left, d + top]; })()"
    )
    await page.drag((x1, y1), (x2, y2))


@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
async def test_a_person_labels_in_the_browser_and_the_site_leaves_the_shadow(tmp_path: Path) -> None:
    (tmp_path / "cloud.yaml").write_text(CONFIG)
    seen = tier_answer(Tier.AGENT, [list(BOX), [40, 10, 60, 40]], scores=[0.9, 0.8], channels=[0, 1])
    with stores_in(tmp_path / "kept") as stores:
        stores.add(*(hard_case(seed, answers=(seen,)) for seed in range(3)))
        detector = FakeDetector(lambda _pixels: [(BOX, 0.9, 0)], LABELS)
        Teacher(detector, stores.cases, stores.labels).label_all(stores.cases.walk())
    assert "shadow only, 0 of 2" in ran(tmp_path, "golden", "start", "--no-teacher")

    assert CHROMIUM is not None
    with page_of(tmp_path) as url:
        async with browsing(CHROMIUM, tmp_path / "profile", url) as page:
            await page.until("window.count && count.textContent", lambda told: told == "0 of 3")
            await page.until("Boolean(canvas.view?.sheet && canvas.view.picture)")
            assert "token" not in await page.value("location.href")
            first = await page.value("canvas.view.sheet.frame.id")

            await page.press("2")
            await drag_in_frame(page, (24, 8, 36, 30))
            await page.until("canvas.view.sheet.boxes.length", lambda number: number == 2)
            await page.press("ArrowRight")
            await page.press("ArrowDown", shift=True)
            assert await page.value("canvas.view.sheet.suggestions.length") == 1
            await page.press("a")
            await page.until("canvas.view.sheet.boxes.length", lambda number: number == 3)
            await page.press("i")
            await page.press("Delete")
            await page.press("z")
            await page.press("z")
            await page.save_picture(tmp_path / "page.png")
            await page.press("Enter")
            await page.until("count.textContent", lambda told: told == "1 of 3")
            second = await page.until("canvas.view.sheet?.frame.id", lambda found: found not in (None, first))

            await page.press("Tab")
            await page.press("3")
            await page.press("Enter")
            await page.until("count.textContent", lambda told: told == "2 of 3")
            await page.until("canvas.view.sheet?.frame.id", lambda found: found not in (None, first, second))
            await page.press("x")
            await page.until("count.textContent", lambda told: told == "3 of 3")
            await page.until(
                "empty.hidden === false && empty.innerText", lambda told: bool(told) and "All done." in told
            )
            assert await page.value("told.hidden")
            await page.save_picture(tmp_path / "done.png")

    assert "site default: 2 golden frames are labelled" in ran(tmp_path, "golden", "status")
    with stores_in(tmp_path / "kept") as stores:
        drawn = stores.labels.find_person(first)
        assert drawn is not None and (drawn.said_by, drawn.came_by) == ("ada", CAME_BY)
        assert [label.name for label in drawn.drawn.labels] == ["person", "car", "car"]
        assert drawn.drawn.boxes_xyxy[0].tolist() == list(BOX)
        assert drawn.drawn.boxes_xyxy[1].tolist() == pytest.approx([25, 18, 37, 40], abs=0.2)
        assert drawn.drawn.boxes_xyxy[2].tolist() == [40, 10, 60, 40]
        assert not drawn.drawn.ignore.any()
        changed = stores.labels.find_person(second)
        assert changed is not None and [label.name for label in changed.drawn.labels] == ["scooter"]
        said = stores.labels.find_persons(case.id for case in stores.cases.walk())
        assert sorted(label.is_usable for label in said.values()) == [False, True, True]
