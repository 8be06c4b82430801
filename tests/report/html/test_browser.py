"""The page in a browser: clicked through, and by keys alone."""

from __future__ import annotations

import gc
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlane.record import Trace, summarise
from memlane.report.html import write_report
from tests.report.html.conftest import with_pictures

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install 'memlane[dev]'")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402
from urllib3.exceptions import HTTPError  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None, reason="no Chromium with its driver here: apt-get install chromium chromium-driver"
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium leaves sockets to the collector
]

Driver = Any


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,900", "--force-device-scale-factor=1"):
        options.add_argument(word)
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = started(options)
    yield made
    made.quit()
    del made
    gc.collect()  # here, where open sockets are nothing to warn of, and not in a test of something else


def started(options: Any) -> Driver:
    """A browser that does not start is as good as none: nothing of memlane's has been asked of it yet."""
    for left in (1, 0):
        try:
            return webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        except (WebDriverException, HTTPError, OSError) as error:
            if not left:
                pytest.skip(f"Chromium does not start here: {str(error).partition(chr(10))[0]}")
    raise AssertionError


def opened(driver: Driver, path: Path) -> None:
    """Opens the page and waits until it can be used."""
    driver.get(path.as_uri())
    end = time.monotonic() + 120
    while driver.execute_script("return document.documentElement.dataset.ready") != "yes":
        assert time.monotonic() < end, driver.get_log("browser")
        time.sleep(0.01)


def processor_seconds(driver: Driver) -> float:
    """What the process that shows the page has had of the processor."""
    driver.execute_cdp_cmd("Performance.enable", {})
    metrics = {one["name"]: one["value"] for one in driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    return float(metrics["ProcessTime"])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace]:
    trace = with_pictures()
    path = tmp_path_factory.mktemp("page") / "transpose.html"
    write_report(trace, path)
    return path, trace


@pytest.fixture
def page(driver: Driver, small: tuple[Path, Trace]) -> Driver:
    driver.get("about:blank")
    opened(driver, small[0])
    return driver


def told(page: Driver) -> str:
    return str(page.find_element(By.ID, "told").text)


def keys(page: Driver, *pressed: str) -> None:
    for key in pressed:
        page.switch_to.active_element.send_keys(key)


def at(page: Driver, name: str, x: int, y: int) -> ActionChains:
    """A pointer at a place of a canvas, from its upper left corner."""
    canvas = page.find_element(By.ID, name)
    page.execute_script("arguments[0].scrollIntoView({block: 'start'}); window.scrollBy(0, -120)", canvas)
    size = canvas.size
    return ActionChains(page, duration=0).move_to_element_with_offset(canvas, x - size["width"] // 2, y - size["height"] // 2)


def test_nothing_is_asked_for_and_nothing_goes_wrong(page: Driver) -> None:
    asked = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    addresses = {one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"}
    assert {address.partition(":")[0] for address in addresses} <= {"file", "about", "data", "blob"}
    assert len({address for address in addresses if address.startswith("file:")}) == 1
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_line_opens_with_its_distributions(page: Driver) -> None:
    button = page.find_element(By.CSS_SELECTOR, "tr.hot button")
    assert button.get_attribute("aria-expanded") == "false"
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    detail = page.find_element(By.ID, button.get_attribute("aria-controls"))
    assert detail.is_displayed()
    drawings = detail.find_elements(By.CSS_SELECTOR, "svg.histogram")
    assert len(drawings) == 2
    assert "L1 40.3, L2 289, DRAM 668" in drawings[0].get_attribute("aria-label")
    assert len(drawings[0].find_elements(By.CSS_SELECTOR, "line.level")) == 3
    bars = drawings[0].find_elements(By.CSS_SELECTOR, "rect.bar title")
    assert sum(int(bar.get_attribute("textContent").split(" of ")[0]) for bar in bars) == 20
    button.click()
    assert not detail.is_displayed()


def test_a_click_anywhere_on_a_line_opens_it(page: Driver) -> None:
    row = page.find_element(By.CSS_SELECTOR, "tr.hot")
    button = row.find_element(By.TAG_NAME, "button")
    row.find_element(By.CSS_SELECTOR, "td.number").click()
    assert button.get_attribute("aria-expanded") == "true"
    row.find_element(By.CSS_SELECTOR, "td.heat").click()
    assert button.get_attribute("aria-expanded") == "false"


def columns(page: Driver, table: str, index: int) -> list[str]:
    """The texts of a column of the rows that are shown."""
    rows = page.find_elements(By.CSS_SELECTOR, f"{table} tbody:not(.aside):not([hidden]) tr.op")
    return [row.find_elements(By.TAG_NAME, "td")[index].text for row in rows]


def test_a_heading_sorts_the_operations_and_a_line_leads_back_to_the_source(page: Driver) -> None:
    head = next(one for one in page.find_elements(By.CSS_SELECTOR, ".listing th") if one.text.startswith("p50"))
    before = columns(page, ".listing", 4)
    head.find_element(By.CLASS_NAME, "sort").click()
    assert columns(page, ".listing", 4) == ["602", "502", "402", "302", "202", "102"]
    head.find_element(By.CLASS_NAME, "sort").send_keys(Keys.ENTER)
    assert columns(page, ".listing", 4) == ["102", "202", "302", "402", "502", "602"]
    assert head.get_attribute("aria-sort") == "ascending"
    page.find_element(By.CSS_SELECTOR, ".sorted tr:last-child a").click()
    row = page.find_element(By.CSS_SELECTOR, "tr.hot:target")
    assert row.find_element(By.CSS_SELECTOR, ".number").text == "10"
    assert head.get_attribute("aria-sort") is None
    row.find_element(By.TAG_NAME, "button").click()
    assert columns(page, ".listing", 4) == before


def test_on_paper_the_derivations_are_open_and_it_is_light(page: Driver) -> None:
    page.execute_script("document.documentElement.dataset.theme = 'dark'; dispatchEvent(new Event('beforeprint'))")
    shut = "return document.querySelectorAll('#findings details:not([open])').length"
    assert page.execute_script(shut) == 0
    assert page.execute_script("return getComputedStyle(document.body).colorScheme") == "light"
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= 720, "a sheet of A4 cuts nothing off"
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert page.execute_script(shut) == 2
    assert page.execute_script("return document.documentElement.dataset.theme") == "dark"


def test_a_line_opens_with_its_picture_in_the_theme_of_the_page(page: Driver) -> None:
    page.find_element(By.CSS_SELECTOR, "tr.hot button").click()
    drawing = WebDriverWait(page, 120).until(lambda page: page.find_element(By.CSS_SELECTOR, "#source .picture svg"))
    assert "32 sectors where 4 would do" in drawing.get_attribute("aria-label")
    assert drawing.is_displayed()
    papers = []
    for wanted in ("light", "dark"):
        page.find_element(By.ID, "theme").click()
        assert page.find_element(By.ID, "theme").text == f"Theme: {wanted}"
        papers.append(page.execute_script("return getComputedStyle(document.querySelector('.picture rect')).fill"))
    page.find_element(By.ID, "theme").click()
    assert papers[0] == "rgb(255, 255, 255)" != papers[1]


def test_a_finding_leads_to_its_line_and_opens_it(page: Driver) -> None:
    page.find_element(By.CSS_SELECTOR, "#findings li a").click()
    row = page.find_element(By.CSS_SELECTOR, "tr.hot:target")
    assert row.find_element(By.CSS_SELECTOR, "button").get_attribute("aria-expanded") == "true"


def test_a_click_goes_from_all_to_one_multiprocessor_to_a_warp_to_an_access(page: Driver, small: tuple[Path, Trace]) -> None:
    at(page, "lanes", 600, 22 + 22 + 5).click().perform()
    assert page.find_element(By.ID, "sm").get_attribute("value") == "1"
    assert page.find_element(By.ID, "of-sm").text == "SM 1"
    # Cycles 0 to 100 and 1 to 201 of the 10,000 that the warp lives, which is the width from 74 on: two that overlap, each in its lane.
    width = page.find_element(By.ID, "lanes").size["width"]
    x = round(74 + (width - 74) * (10 + 50) / 10_000)
    at(page, "lanes", x, 22 + 6).click().perform()
    assert told(page).startswith("ld.global.f32, line 4; 100 cycles, 4 sectors; block 1, warp ")
    assert "access 1 of 10" in told(page)
    at(page, "lanes", x, 22 + 20).click().perform()
    assert told(page).startswith("st.global.f32, line 4; 200 cycles, 32 sectors; block 1, warp ")
    assert "access 2 of 10" in told(page)
    series = page.find_element(By.ID, "of-warp").text
    assert series.startswith("block 1, warp ")
    assert series.endswith("on SM 1")


def test_by_keys_alone(page: Driver) -> None:
    lanes = page.find_element(By.ID, "lanes")
    lanes.send_keys(Keys.ARROW_DOWN)
    assert told(page).startswith("SM 1: 2 warps")
    keys(page, Keys.ENTER)
    assert page.find_element(By.ID, "sm").get_attribute("value") == "1"
    keys(page, ".")
    assert "access 1 of 10" in told(page)
    keys(page, ".", ".")
    assert "access 3 of 10" in told(page)
    keys(page, ",")
    assert "access 2 of 10" in told(page)
    before = page.execute_script("return document.activeElement.id")
    keys(page, "+", "+", Keys.ARROW_RIGHT, Keys.HOME, Keys.ESCAPE, Keys.ESCAPE)
    assert page.find_element(By.ID, "sm").get_attribute("value") == ""
    assert before == page.execute_script("return document.activeElement.id") == "lanes"


def test_tab_reaches_every_control_once_and_in_order(page: Driver) -> None:
    page.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    body = page.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    seen = []
    for _ in range(60):
        name = page.execute_script(
            "const e = document.activeElement;"
            "return e === document.body ? '' : e.id || e.getAttribute('aria-label') || e.textContent.trim()"
        )
        if not name or (seen and name == seen[0]):
            break
        seen.append(name)
        keys(page, Keys.TAB)
    assert seen[:3] == ["Skip to the findings", "Skip to the source", "Skip to the timeline"]
    order = [
        seen.index(name)
        for name in ("theme", "transpose.cu", "launch", "sm", "colour", "out", "in", "whole", "lanes", "by-sm", "by-warp", "series")
    ]
    assert order == sorted(order)


def drawn(page: Driver) -> Any:
    """What the time line shows, as a text that differs where a pixel does."""
    return page.execute_script("return document.getElementById('lanes').toDataURL()")


def test_zoom_and_pan_change_the_drawing_and_whole_brings_it_back(page: Driver) -> None:
    first = drawn(page)
    page.find_element(By.ID, "in").click()
    zoomed = drawn(page)
    assert zoomed != first
    at(page, "lanes", 700, 40).click_and_hold().move_by_offset(-200, 0).release().perform()
    assert drawn(page) != zoomed
    assert page.find_element(By.ID, "sm").get_attribute("value") == "", "a drag chooses nothing"
    page.find_element(By.ID, "whole").click()
    assert drawn(page) == first


def test_another_launch_and_other_colours(page: Driver) -> None:
    first = drawn(page)
    page.find_element(By.CSS_SELECTOR, "#launch option[value='1']").click()
    second = drawn(page)
    assert second != first
    page.find_element(By.CSS_SELECTOR, "#colour option[value='cycles']").click()
    assert drawn(page) != second
    assert "logarithmic" in page.find_element(By.ID, "legend").text


def test_the_headings_of_a_printed_page_are_no_form_controls(page: Driver) -> None:
    """Browsers leave buttons out of the headings that they repeat on each printed page."""
    assert page.find_elements(By.CSS_SELECTOR, ".listing th .sort, .resources th .sort") != []
    assert page.find_elements(By.CSS_SELECTOR, "thead button") == []


def test_an_operation_is_shown_on_the_time_line(page: Driver) -> None:
    button = page.find_elements(By.CSS_SELECTOR, "tr.hot button")[2]
    button.click()
    page.find_element(By.CSS_SELECTOR, "tr.detail:not([hidden]) .seek").click()
    assert page.execute_script("return document.activeElement.id") == "lanes"
    assert told(page) == "ld.shared.f32, line 10 in full colour; press Escape to undo"
    assert page.find_element(By.ID, "launch").get_attribute("value") == "1"


def test_the_series_as_a_table(page: Driver, small: tuple[Path, Trace]) -> None:
    page.find_element(By.CSS_SELECTOR, "#rows summary").click()
    rows = WebDriverWait(page, 120).until(lambda page: page.find_elements(By.CSS_SELECTOR, "#rows tbody tr"))
    cycles = [int(row.find_elements(By.TAG_NAME, "td")[3].text) for row in rows]
    assert cycles == [value for turn in range(5) for value in (100 + turn, 200 + turn)]


def test_means_lead_to_their_multiprocessor_and_warp(page: Driver) -> None:
    width = page.find_element(By.ID, "by-sm").size["width"]
    at(page, "by-sm", round(50 + (width - 62) * 0.75), 80).click().perform()
    assert page.find_element(By.ID, "sm").get_attribute("value") == "1"
    assert page.find_element(By.ID, "of-sm").text == "SM 1"
    at(page, "by-warp", round(50 + (width - 62) * 0.75), 80).click().perform()
    assert "10 accesses, 152 cycles on average" in told(page)


def test_the_theme_is_chosen_and_the_drawing_follows(page: Driver) -> None:
    theme = page.find_element(By.ID, "theme")
    colours = []
    for wanted in ("light", "dark", "system"):
        theme.click()
        assert theme.text == f"Theme: {wanted}"
        colours.append((page.execute_script("return getComputedStyle(document.body).backgroundColor"), drawn(page)))
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] != colours[1][1]


@pytest.mark.parametrize("width", [1300, 800, 420])
def test_no_width_makes_the_page_scroll_sideways(page: Driver, width: int) -> None:
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_the_page_of_a_million_records_opens_in_less_than_two_seconds(driver: Driver, million: tuple[Path, Trace, float]) -> None:
    """Of the processor: others may have it meanwhile. The process may be a new one, or the one that showed the page before."""
    path, trace, _ = million
    driver.get("about:blank")
    before = processor_seconds(driver)
    opened(driver, path)
    after = processor_seconds(driver)
    assert 0 < (after - before if after > before else after) < 2
    assert f"{summarise(trace)[0].accesses:,}" in driver.find_element(By.CSS_SELECTOR, "td[data-of='accesses']").text
