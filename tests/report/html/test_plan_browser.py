"""The page of a plan's timeline in a browser: by pointer, by keys alone, and in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memlane.report.timelines import draw
from tests.report.html import test_browser as browser
from tests.report.html.test_browser import By, Driver, Keys, keys, opened, told
from tests.report.html.test_plan_page import LINE

pytestmark = browser.pytestmark
driver = browser.driver


@pytest.fixture
def page(driver: Driver, tmp_path: Path) -> Driver:
    draw(LINE, tmp_path / "plan.html")
    driver.get("about:blank")
    opened(driver, tmp_path / "plan.html")
    return driver


def test_steps_are_chosen_by_keys(page: Driver) -> None:
    page.execute_script("document.getElementById('stage').focus()")
    keys(page, ".")
    assert told(page).startswith("upload <0>: 0 ns to 4 us (4 us); on the critical path; work, upload 1, turn 3 waited for it.")
    keys(page, Keys.ARROW_RIGHT)
    assert told(page).startswith("upload 1, turn 3: 4 us to 8 us")
    keys(page, Keys.ARROW_UP)  # the queue above, at the same time
    assert told(page).startswith("work: 4 us to 5 us (1 us); waited for upload <0>; together waited for it.")
    keys(page, Keys.ENTER)
    assert told(page).startswith("upload <0>:")
    keys(page, Keys.ESCAPE)
    assert told(page) == ""
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_click_marks_a_step_with_its_lines_and_zooming_makes_room_for_names(page: Driver) -> None:
    page.find_element(By.CSS_SELECTOR, "[data-step='2']").click()
    chosen = page.find_elements(By.CSS_SELECTOR, ".chosen")
    assert [one.get_attribute("data-step") or one.get_attribute("data-to") for one in chosen] == ["2", "3", "4"]
    width = page.find_element(By.ID, "drawing").rect["width"]
    page.find_element(By.ID, "stage").send_keys("++")
    assert page.find_element(By.ID, "drawing").rect["width"] == pytest.approx(4 * width, rel=0.01)
    page.find_element(By.ID, "whole").click()
    assert page.find_element(By.ID, "drawing").rect["width"] == pytest.approx(width, rel=0.01)


def test_letters_are_readable_in_both_themes(page: Driver) -> None:
    """Contrast of names on their boxes 4.5, of boxes and lines with the paper 3."""

    def luminance(text: str) -> float:
        parts = [float(one) / 255 for one in re.findall(r"[\d.]+", text)[:3]]
        red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    def colour(selector: str, name: str) -> str:
        return str(page.execute_script("return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name))

    for theme in ("light", "dark"):
        page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        paper = colour("#stage", "backgroundColor")
        for kind in ("launch", "copy", "call"):
            box = colour(f".step.{kind} rect", "fill")
            assert contrast(box, colour(".step text", "fill")) >= 4.5, (theme, kind)
            assert contrast(box, paper) >= 3, (theme, kind)
        assert contrast(colour(".line.critical line", "stroke"), paper) >= 3
        assert contrast(colour(".line:not(.critical) line", "stroke"), paper) >= 3


def test_on_paper_all_is_shown(page: Driver) -> None:
    page.find_element(By.ID, "stage").send_keys("+")
    whole = page.find_element(By.ID, "stage").rect["width"]
    assert page.find_element(By.ID, "drawing").rect["width"] > 1.5 * whole
    page.print_page()
    assert page.find_element(By.ID, "all-steps").get_attribute("open")
    assert page.find_element(By.ID, "drawing").rect["width"] <= whole
