"""The console before a broker that has users: signing in, rights, and who is put out."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator

import pytest

import latermq
from latermq import admin
from latermq_console.reading.jobs import Plan
from latermq_console.serving import attempts, sessions
from latermq_console.serving import console as serving
from latermq_console.serving.sessions import FormSeal
from latermq_proto.latermq.v1 import dead_letter_pb2, schedule_pb2, user_pb2
from support import console_story as shop
from support.broker_process import BrokerProcess
from support.console_rig import WAIT_S, Visitor, visiting

ROOT, SECRET = "root", "the-secret-of-root"
SHOP, SHOP_SECRET = "support", "the-secret-of-support"
CONFIG = f'[auth]\nenabled = true\nroot_access_key = "{ROOT}"\nroot_secret_key = "{SECRET}"\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("console-users") / "data"
    with BrokerProcess(data_dir, config=CONFIG) as broker:
        broker.start()
        with admin.connect(broker.endpoint, access_key=ROOT, secret=SECRET) as root:
            for group in ("billing", "shipping"):
                root.call(root.groups.CreateGroup, shop.policy(group))
            root.call(
                root.users.CreateUser,
                user_pb2.CreateUserRequest(access_key=SHOP, secret=SHOP_SECRET),
            )
            grant = user_pb2.Grant(
                kind=user_pb2.Grant.GROUP, pattern="billing", rights=["browse", "body"]
            )
            root.call(
                root.users.GrantRights, user_pb2.ChangeGrantRequest(access_key=SHOP, grant=grant)
            )
        yield broker


@pytest.fixture
def endpoint(broker: BrokerProcess) -> str:
    return broker.endpoint


async def bury(endpoint: str) -> None:
    async with latermq.connect(endpoint, access_key=ROOT, secret=SECRET) as mq:
        await mq.send("%DLQ%billing", b'{"a": 1}', keys=["k-1"])


async def test_nobody_sees_anything_without_signing_in(endpoint: str) -> None:
    async with visiting(endpoint) as (console, visitor):
        for path in ("/", "/dead/billing", "/jobs", "/nowhere"):
            page = await visitor.get(path)
            assert "Sign in to LaterMQ" in page
            assert "billing" not in page.split("<form")[0]
        assert len(console.sessions) == 0
        await visitor.client.get("/dead", headers={"X-Console-Live": "1"})
        answer = await visitor.client.get("/dead", headers={"X-Console-Live": "1"})
        assert answer.status_code == 401, "a page that refreshes itself is told so"
        await visitor.post("/dead/billing/change", verb="drop", expected="1", sure="yes")
        assert visitor.path == "/sign-in"


async def test_a_link_leads_where_it_should_after_signing_in(endpoint: str) -> None:
    await bury(endpoint)
    async with visiting(endpoint) as (console, visitor):
        await visitor.get("/dead/billing?q=k-1")
        assert visitor.path == "/sign-in?next=%2Fdead%2Fbilling%3Fq%3Dk-1"
        page = await visitor.post(
            "/sign-in", access_key=ROOT, secret=SECRET, next_="/dead/billing?q=k-1"
        )
        assert visitor.path == "/dead/billing?q=k-1"
        assert SECRET not in page
        assert "Sign out" in page
        jar = visitor.client.cookies.jar
        cookie = next(each for each in jar if each.name == "latermq_console")
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "lax"
        assert cookie.value is not None
        assert SECRET not in cookie.value
        await visitor.post("/sign-out")
        assert visitor.path == "/sign-in"
        assert len(console.sessions) == 0
        visitor.client.cookies.set("latermq_console", cookie.value, domain="127.0.0.1")
        assert "Sign in to LaterMQ" in await visitor.get("/dead/billing")


async def test_wrong_secrets_are_slowed_down_and_the_right_one_passes(endpoint: str) -> None:
    async with visiting(endpoint) as (console, visitor):
        guessing = Visitor(visitor.app)
        async with guessing.client:
            await guessing.get("/sign-in")
            token = re.search(r'name="csrf" value="([^"]+)"', guessing.page)
            assert token is not None
            form = {"csrf": token[1], "access_key": ROOT, "secret": "not-the-secret"}
            guesses = [guessing.client.post("/sign-in", data=form) for _ in range(240)]
            answers = Counter(each.status_code for each in await asyncio.gather(*guesses))
        # Those of the burst, and the few that waited for their turns, were tried.
        assert answers[403] <= attempts.KEY_BURST + attempts.WAITING_PER_LANE_MAX + 1
        assert answers[429] == 240 - answers[403]
        assert len(console.sessions) == 0
        await visitor.sign_in(SHOP, SHOP_SECRET)
        assert visitor.path == "/", "another user behind the same address"
        await visitor.post("/sign-out")
        await visitor.sign_in(ROOT, SECRET)
        assert visitor.path == "/", "the right secret, when its turn comes"


async def test_a_form_to_sign_in_belongs_to_its_browser(endpoint: str) -> None:
    async with visiting(endpoint) as (console, visitor):
        await visitor.get("/sign-in")
        visitor.page = f'name="csrf" value="{FormSeal().token("x")}"'
        assert "too old" in await visitor.post("/sign-in", access_key=ROOT, secret=SECRET)
        await visitor.get("/sign-in")
        visitor.client.headers["origin"] = "https://elsewhere.example"
        await visitor.post("/sign-in", access_key=ROOT, secret=SECRET)
        assert visitor.status == 403
        assert len(console.sessions) == 0


async def test_a_user_does_what_its_rights_allow(endpoint: str) -> None:
    await bury(endpoint)
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.sign_in(SHOP, SHOP_SECRET)
        page = await visitor.until("/", "the right browse on all groups")
        assert "billing" not in page, "it may not list groups"
        for to in ("dead", "groups"):
            assert "Open a group by its name" in await visitor.get(f"/{to}")
            await visitor.get(f"/go?to={to}&q=billing")
            assert visitor.path == f"/{to}/billing"
            assert visitor.status == 200
        page = await visitor.until("/dead/billing", "no failure told")
        await visitor.get("/dead/billing/letters/0")
        assert visitor.status == 200
        await visitor.get("/dead/shipping")
        assert visitor.status == 403
        assert "right browse on group shipping" in visitor.page
        page = await visitor.get("/dead/billing/change?verb=drop")
        assert visitor.status == 403
        assert "right redrive on group billing" in page


async def test_a_user_that_is_disabled_is_put_out(endpoint: str) -> None:
    async with visiting(endpoint) as (console, visitor):
        await visitor.sign_in(SHOP, SHOP_SECRET)
        await visitor.get("/")
        assert visitor.path == "/"
        with admin.connect(endpoint, access_key=ROOT, secret=SECRET) as root:
            for disabled in (True, False):
                root.call(
                    root.users.AlterUser,
                    user_pb2.AlterUserRequest(access_key=SHOP, disabled=disabled),
                )
                if disabled:
                    await visitor.until("/", "Sign in to LaterMQ")
                    assert len(console.sessions) == 0


async def test_sessions_do_not_see_each_other(endpoint: str) -> None:
    await bury(endpoint)
    async with visiting(endpoint) as (console, visitor):
        await visitor.sign_in(ROOT, SECRET)
        await visitor.get("/dead/billing/change?verb=redrive&q=nothing-like-it")
        job = console.jobs.begin(
            console.desk(ROOT, SECRET),
            "billing",
            Plan(group="billing", verb="redrive", filter=dead_letter_pb2.DeadLetterFilter()),
            "",
            {},
            0,
        )
        await visitor.get(f"/jobs/{job.id}")
        assert visitor.status == 200
        other = Visitor(visitor.app)
        async with other.client:
            await other.sign_in(SHOP, SHOP_SECRET)
            await other.get(f"/jobs/{job.id}")
            assert other.status == 404
            assert "No jobs yet" in await other.get("/jobs")


async def test_an_admin_disables_a_user_and_lets_it_in_again(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        await visitor.sign_in(ROOT, SECRET)
        page = await visitor.get("/access")
        assert "group billing" in page
        assert "in the configuration" in page, "root is not changed here"
        for disabled, words in (("yes", "may not come in any more"), ("", "may come in")):
            await visitor.post(f"/access/users/{SHOP}", disabled=disabled, back="/access")
            assert words in visitor.page
        other = Visitor(visitor.app)
        async with other.client:
            await other.sign_in(SHOP, SHOP_SECRET)
            page = await other.get("/access")
            assert "This user may not see users" in page
            assert "group billing" not in page
            await other.post("/access/limits", scope="client", sends_per_s="1", back="/access")
            assert "Not done" in other.page
            for path in ("/topics", "/pending", "/groups/shipping", "/clients"):
                await other.get(path)
                assert other.status == 403
            await other.get("/groups/billing")
            assert other.status == 200


async def test_the_consoles_own_user_is_nobody_elses(endpoint: str) -> None:
    await bury(endpoint)
    async with visiting(endpoint, access_key=ROOT, secret=SECRET) as (console, visitor):
        for path in ("/", "/dead/billing", "/access"):
            assert "Sign in to LaterMQ" in await visitor.get(path)
        await visitor.sign_in(SHOP, SHOP_SECRET)
        page = await visitor.until("/", "the right browse on all groups")
        assert "billing" not in page
        page = await visitor.get("/dead")
        assert "This user may not list groups" in page
        await visitor.get("/dead/shipping")
        assert visitor.status == 403
        await visitor.sign_in(ROOT, SECRET)
        await visitor.until("/", "billing")
        await visitor.post("/sign-out")
        assert len(console.sessions) == 0
        await visitor.sign_in(ROOT, SECRET)
        await visitor.until("/", "billing")


async def test_who_is_idle_is_forgotten_with_its_watch(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SWEEP_S", 0.02)
    async with visiting(endpoint) as (console, visitor):
        await visitor.sign_in(ROOT, SECRET)
        [session] = console.sessions.of_user(ROOT)
        watch = console.watch_of(session)
        assert watch is not None
        monkeypatch.setattr(sessions, "IDLE_S_MAX", 0.0)
        async with asyncio.timeout(WAIT_S):
            while len(console.sessions) or not watch.over:
                await asyncio.sleep(0.02)


async def test_a_user_has_the_schedules_of_its_topics_alone(endpoint: str) -> None:
    with admin.connect(endpoint, access_key=ROOT, secret=SECRET) as root:
        grant = user_pb2.Grant(kind=user_pb2.Grant.TOPIC, pattern="reminders", rights=["pub"])
        root.call(root.users.GrantRights, user_pb2.ChangeGrantRequest(access_key=SHOP, grant=grant))
        for name, topic in (("own", "reminders"), ("secret", "payroll")):
            schedule = schedule_pb2.Schedule(name=name, topic=topic, cron="0 6 29 2 *")
            request = schedule_pb2.PutScheduleRequest(schedule=schedule)
            root.call(root.schedules.PutSchedule, request)
    async with visiting(endpoint) as (_, visitor):
        await visitor.sign_in(SHOP, SHOP_SECRET)
        page = await visitor.get("/schedules")
        assert "own" in page
        assert "payroll" not in page
        await visitor.post("/schedules/change", verb="pause", name="secret", back="/schedules")
        assert "Not done" in visitor.page
        await visitor.post("/schedules/change", verb="pause", name="own", back="/schedules")
        assert "schedule own paused" in visitor.page
        other = Visitor(visitor.app)
        async with other.client:
            await other.sign_in(ROOT, SECRET)
            page = await other.get("/schedules")
            assert 'aria-label="Pause secret"' in page
            assert 'aria-label="Resume own"' in page
