"""Every address of the console in a browser: pages looked at by axe-core, verbs done by an admin.

A route or a verb that is added and stands in no table here fails `test_nothing_is_left_out`; one
that stands there is met, as each case checks what the browser really sent.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from console.addresses import NO_PAGE, PAGES, Address, addresses, route_of
from console.guarded import (
    CLERK,
    CLERK_SECRET,
    CONFIG,
    DELAYED,
    HALF,
    ROOT,
    SECRET,
    as_root,
    fill,
    somebody_who_holds,
)
from latermq_console.pages import letter_jobs, pending, schedules
from support import console_story as shop
from support.broker_process import BrokerProcess
from support.browser import aside, console_process, page_of, serious

Look = Callable[[], None]  # at the page that is shown, by axe-core
Case = Callable[[Page, Look], None]
VERBS: Final = {
    "/dead/{group}/change": set(letter_jobs.VERBS),
    "/pending/change": set(pending.DONE_WORDS),
    "/schedules/change": set(schedules.DONE_WORDS),
    "/access/rights": {"grant", "revoke"},
    "/access/users/{user}": {"disable", "let in"},
}  # of routes that do several things; the others do one
ON_THE_WAY: Final = {"/sign-in", "/jobs/{id}", "/messages/{id:path}", "/client"}


@pytest.fixture(scope="module")
def there() -> list[Address]:
    return aside(addresses())


@pytest.fixture(scope="module")
def guarded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a console before a broker that has users."""
    data_dir = tmp_path_factory.mktemp("guarded") / "data"
    with BrokerProcess(data_dir, config=CONFIG) as broker, ExitStack() as stack:
        broker.start()
        with as_root():
            aside(fill(broker.endpoint))
            stack.enter_context(somebody_who_holds(broker.endpoint))
        yield stack.enter_context(console_process(broker.endpoint))


@contextmanager
def entered(
    browser: Browser, url: str, key: str = ROOT, secret: str = SECRET
) -> Iterator[tuple[Page, list[str], list[str]]]:
    """A page of somebody who has signed in, what its tools complain of, and what axe-core did."""
    with page_of(browser, url) as (page, complaints):
        problems: list[str] = []
        page.goto("/sign-in?next=/jobs")
        sign_in(page, lambda: problems.extend(serious(page)), key, secret)
        yield page, complaints, problems


def sign_in(page: Page, look: Look, key: str = ROOT, secret: str = SECRET) -> None:
    expect(page.get_by_role("heading", name="Sign in to LaterMQ")).to_be_visible()
    look()
    page.get_by_label("Access key").fill(key)
    page.get_by_label("Secret").fill(secret)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/jobs$"))


def begin_slow_job(page: Page) -> None:
    """Begin a redrive that takes a while, from the plan that tells what it would be."""
    page.goto("/dead/returning/change?verb=redrive")
    page.get_by_role("radio", name="All").check()
    page.get_by_label("At most per second").fill("1")
    page.get_by_role("button", name="Redrive", exact=True).press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()


def stop_job(page: Page, look: Look) -> None:
    begin_slow_job(page)
    look()
    page.get_by_role("button", name="Stop").press("Enter")
    expect(page.locator("[data-state=stopped]")).to_be_visible()


def sign_out(page: Page, look: Look) -> None:
    page.get_by_role("button", name=ROOT).press("Enter")
    expect(page.get_by_role("heading", name="Sign in to LaterMQ")).to_be_visible()
    page.goto("/jobs")
    expect(page.get_by_role("heading", name="Sign in to LaterMQ")).to_be_visible()


def change_letter(letter: int, verb: str) -> Case:
    def change(page: Page, look: Look) -> None:
        page.goto(f"/dead/{shop.GROUP}")
        page.get_by_role("checkbox", name=f"Choose letter {letter}", exact=True).check()
        page.get_by_role("button", name=f"{verb} chosen").press("Enter")
        expect(page.get_by_text(f"1 letter of {shop.GROUP}")).to_be_visible()
        look()
        if verb == "Drop":
            page.get_by_role("checkbox", name="I want them gone for good").check()
        button = "Drop for good" if verb == "Drop" else "Redrive"
        page.get_by_role("button", name=button, exact=True).press("Enter")
        expect(page.locator("[data-state=done]")).to_be_visible()
        expect(page.locator("[data-changed]")).to_have_text("1")

    return change


def alter_group(page: Page, look: Look) -> None:
    page.goto("/groups/altered")
    page.get_by_text("Change its policy").press("Enter")
    page.get_by_role("textbox", name="Attempts").fill("7")
    page.keyboard.press("Enter")
    expect(page.get_by_text("7 deliveries, then a dead letter")).to_be_visible()


def reset_group(page: Page, look: Look) -> None:
    page.goto("/groups/moved/reset?topic=moves&to=earliest")
    look()
    page.get_by_role("checkbox", name="Move it").check()
    page.get_by_role("button", name="Move the group").press("Enter")
    expect(page.get_by_text("moved goes on in moves from offset 0")).to_be_visible()


def delete(kind: str, name: str) -> Case:
    def delete_it(page: Page, look: Look) -> None:
        page.goto(f"/{kind}s/{name}/delete")
        look()
        page.get_by_label("to say that you are sure").fill(name)
        page.get_by_role("button", name="Delete for good").press("Enter")
        expect(page.get_by_text(f"{kind} {name} deleted")).to_be_visible()
        answer = page.goto(f"/{kind}s/{name}")
        assert answer is not None
        assert answer.status == 404

    return delete_it


def create_topic(page: Page, look: Look) -> None:
    page.goto("/topics")
    page.get_by_text("Make a topic").press("Enter")
    page.get_by_role("textbox", name="Name", exact=True).fill("made-here")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="made-here")).to_be_visible()


def alter_topic(page: Page, look: Look) -> None:
    page.goto("/topics/changed")
    page.get_by_text("Change it").press("Enter")
    page.get_by_role("textbox", name="Queues").fill("5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("topic changed changed")).to_be_visible()
    expect(page.locator("section[aria-labelledby=queues] tbody tr")).to_have_count(5)


def change_pending(topic: str, button: str, done: str, sure: str = "") -> Case:
    def change(page: Page, look: Look) -> None:
        page.goto(f"/pending?topic={topic}")
        page.get_by_role("checkbox", name=re.compile("^Choose (?!all)")).check()
        page.get_by_role("button", name=button).press("Enter")
        if sure:
            be_sure(page, look, sure)
        expect(page.get_by_text(f"1 message {done}")).to_be_visible()

    return change


def end_transaction(key: str, button: str, sure: str, done: str) -> Case:
    def end(page: Page, look: Look) -> None:
        page.goto("/transactions")
        row = page.locator("tbody tr", has=page.get_by_role("link", name=key))
        row.get_by_role("checkbox").check()
        page.get_by_role("button", name=button).press("Enter")
        be_sure(page, look, sure)
        expect(page.get_by_text(f"1 message {done}")).to_be_visible()
        expect(page.get_by_role("link", name=key)).to_have_count(0)

    return end


def be_sure(page: Page, look: Look, button: str) -> None:
    """Look at the page that asks first, and say yes."""
    sure = page.locator("main").get_by_role("button", name=button, exact=True)
    expect(sure).to_be_visible()
    look()
    sure.press("Enter")


def change_schedule(name: str, button: str, done: str) -> Case:
    def change(page: Page, look: Look) -> None:
        page.goto("/schedules")
        page.get_by_role("button", name=f"{button} {name}").press("Enter")
        if button == "Remove":
            be_sure(page, look, "Remove")
        expect(page.get_by_text(f"schedule {name} {done}")).to_be_visible()

    return change


def kick(page: Page, look: Look) -> None:
    page.goto("/clients?group=holding")
    page.locator("tbody td.main a").first.press("Enter")
    page.get_by_text("Let it go").first.press("Enter")
    page.get_by_role("checkbox", name="It hangs, or is gone").check()
    page.get_by_role("button", name="Let it go").press("Enter")
    expect(page.get_by_text("was let go; 1 message")).to_be_visible()


def switch_user(name: str, button: str, done: str) -> Case:
    def switch(page: Page, look: Look) -> None:
        page.goto("/access")
        page.locator(f"tr[data-key={name}]").get_by_role("button", name=button).press("Enter")
        expect(page.get_by_text(f"{name} {done}")).to_be_visible()

    return switch


def change_rights(name: str, button: str, done: str) -> Case:
    def change(page: Page, look: Look) -> None:
        page.goto("/access")
        page.get_by_text("Change rights").press("Enter")
        page.get_by_label("Of the user").fill(name)
        page.get_by_label("Name, or orders-*").fill(shop.GROUP)
        page.get_by_role("checkbox", name="browse").check()
        page.get_by_role("button", name=button).press("Enter")
        expect(page.get_by_text(f"{name} {done} browse on group {shop.GROUP}")).to_be_visible()

    return change


def set_limit(page: Page, look: Look) -> None:
    page.goto("/access")
    page.get_by_text("Set a limit").press("Enter")
    page.get_by_label("Sends per second").fill("70")
    page.keyboard.press("Enter")
    expect(page.get_by_text("limit of client * set")).to_be_visible()


def unset_limit(page: Page, look: Look) -> None:
    page.goto("/access")
    page.get_by_role("button", name="Take away the limit of group slow").press("Enter")
    expect(page.get_by_text("group slow is limited no longer")).to_be_visible()


def sign_in_anew(page: Page, look: Look) -> None:
    page.goto("/sign-in?next=/jobs")
    sign_in(page, look)


CASES: Final[tuple[tuple[str, str, Case], ...]] = (
    ("/sign-in", "", sign_in_anew),
    ("/sign-out", "", sign_out),
    ("/dead/{group}/change", "redrive", change_letter(0, "Redrive")),
    ("/dead/{group}/change", "drop", change_letter(1, "Drop")),
    ("/jobs/{id}/stop", "", stop_job),
    ("/groups/{group}", "", alter_group),
    ("/groups/{group}/reset", "", reset_group),
    ("/groups/{group}/delete", "", delete("group", "deleted")),
    ("/topics", "", create_topic),
    ("/topics/{topic}", "", alter_topic),
    ("/topics/{topic}/delete", "", delete("topic", "dropped")),
    ("/pending/change", "expedite", change_pending(DELAYED[0], "Due now", "due now")),
    ("/pending/change", "postpone", change_pending(DELAYED[1], "Postpone", "postponed")),
    (
        "/pending/change", "cancel",
        change_pending(DELAYED[2], "Cancel…", "cancelled", sure="Cancel for good"),
    ),
    ("/pending/change", "commit", end_transaction(HALF[0], "Commit…", "Commit", "committed")),
    (
        "/pending/change", "cancel",
        end_transaction(HALF[1], "Roll back…", "Cancel for good", "cancelled"),
    ),
    ("/schedules/change", "pause", change_schedule("ticking", "Pause", "paused")),
    ("/schedules/change", "resume", change_schedule("resting", "Resume", "resumed")),
    ("/schedules/change", "remove", change_schedule("leaving", "Remove", "removed")),
    ("/client/kick", "", kick),
    ("/access/users/{user}", "disable", switch_user("staying", "Disable", "may not come in")),
    ("/access/users/{user}", "let in", switch_user("away", "Let in", "may come in")),
    ("/access/rights", "grant", change_rights("granted", "Grant", "may now")),
    ("/access/rights", "revoke", change_rights("revoked", "Revoke", "may no longer")),
    ("/access/limits", "", set_limit),
    ("/access/limits/unset", "", unset_limit),
)  # fmt: skip


def test_nothing_is_left_out(there: list[Address]) -> None:
    pages = {each.route for each in there if each.method == "GET"}
    assert {route_of(there, path) for path in PAGES} | ON_THE_WAY | NO_PAGE == pages
    posts = {each.route for each in there if each.method == "POST"}
    assert VERBS.keys() <= posts
    verbs = {(route, verb) for route in posts for verb in VERBS.get(route, {""})}
    assert {(route, verb) for route, verb, _ in CASES} == verbs


@pytest.mark.parametrize(
    ("route", "verb", "case"), CASES, ids=[f"{route} {verb}".strip() for route, verb, _ in CASES]
)
def test_a_verb_is_done(
    browser: Browser, guarded: str, there: list[Address], route: str, verb: str, case: Case
) -> None:
    with entered(browser, guarded) as (page, complaints, problems):
        sent: list[tuple[str, str]] = []
        asking = 0  # pages that ask first, and were not looked at

        def hear(answer: Response) -> None:
            nonlocal asking
            if answer.request.method == "POST":
                sent.append(verb_of(there, answer))
                asking += answer.status == 200

        def look() -> None:
            nonlocal asking
            asking = 0
            problems.extend(serious(page))

        page.on("response", hear)
        case(page, look)
        assert (route, verb) in sent
        assert asking == 0
        assert problems == []
        assert [said for said in complaints if "404" not in said] == []


def verb_of(there: list[Address], answer: Response) -> tuple[str, str]:
    """Return the route that a form was sent to, and which of its verbs it said."""
    form = parse_qs(answer.request.post_data or "")
    route = route_of(there, answer.url, "POST")
    verb = form.get("verb", [""])[-1]
    if route == "/access/users/{user}":
        verb = "disable" if "disabled" in form else "let in"
    return route, verb


def test_pages_that_a_way_leads_to(browser: Browser, guarded: str, there: list[Address]) -> None:
    """What has an id that nobody knows before: a job, a client, a message. And who signs in."""
    with page_of(browser, guarded) as (page, complaints):
        looked: set[str] = set()
        problems: list[str] = []

        def look() -> None:
            looked.add(route_of(there, page.url))
            problems.extend(serious(page))

        page.goto("/sign-in?next=/jobs")
        sign_in(page, look)
        begin_slow_job(page)
        look()
        page.goto("/jobs")
        expect(page.get_by_role("link", name="Redrive in returning")).not_to_have_count(0)
        look()
        page.goto("/clients?group=holding")
        page.locator("tbody td.main a").first.press("Enter")
        expect(page.get_by_role("heading", name="What it holds")).to_be_visible()
        look()
        page.goto("/messages?q=A-1003")
        page.locator("main a[href^='/messages/']").first.press("Enter")
        expect(page.get_by_role("heading", name="Body").first).to_be_visible()
        look()
        assert looked >= ON_THE_WAY
        assert problems == []
        assert complaints == []


def test_who_has_few_rights_is_told_so_and_changes_nothing(browser: Browser, guarded: str) -> None:
    with entered(browser, guarded, CLERK, CLERK_SECRET) as (page, complaints, problems):
        for path, words in (
            ("/", "browse on all groups"),
            ("/groups", "This user may not list groups"),
            ("/dead", "This user may not list groups"),
            ("/access", "This user may not see users"),
            ("/groups/returning", "needs the right sub or browse on group returning"),
            ("/dead/returning", "right browse on group returning"),
            (f"/dead/{shop.GROUP}/change?verb=redrive", f"right redrive on group {shop.GROUP}"),
            ("/pending", "What a user may do is a matter of grants"),
            ("/clients", "What a user may do is a matter of grants"),
            ("/topics", "What a user may do is a matter of grants"),
        ):
            page.goto(path)
            expect(page.get_by_text(words).first).to_be_visible()
            problems += serious(page)
        page.goto(f"/dead/{shop.GROUP}")
        page.locator("tbody td.main a").first.press("Enter")
        expect(page.get_by_text('"amount"').first).to_be_visible()
        page.get_by_role("button", name="Redrive").press("Enter")
        expect(page.get_by_text(f"right redrive on group {shop.GROUP}").first).to_be_visible()
        page.goto(f"/groups/{shop.GROUP}")
        page.get_by_text("Change its policy").press("Enter")
        page.get_by_role("textbox", name="Attempts").fill("9")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Not done")).to_be_visible()
        expect(page.get_by_text(f"{shop.ATTEMPTS} deliveries, then")).to_be_visible()
        assert problems == []
        assert [said for said in complaints if "403" not in said] == []
