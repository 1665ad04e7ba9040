"""A page to talk to a served agent, at /page of its address; NiceGUI (extra `page`) draws it.

Guarantees: a client of that address like any other: questions and thumbs go through /v1, with the token that its reader
typed. What a person, a model or a database wrote is shown as text, never read as HTML or Markdown, and the browser may
load from this address alone. An answer nobody waits for any more is ended. Not covered: TLS. A conversation lives in
the server's memory as long as its tab is open.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx2
import openai
from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui
from starlette.applications import Starlette
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sql_agent.serving.endpoint import server_message

PATH = "/page"
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval'; img-src 'self' data:; font-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CSS = """
.nicegui-content { padding: 0 }
.whole { height: 100dvh; width: 100%; max-width: 56rem; margin: 0 auto; padding: 0 1rem 1rem; flex-wrap: nowrap }
.wide, .said .q-scrollarea__content { width: 100% }
.text { white-space: pre-wrap; overflow-wrap: anywhere }
.asked { align-self: flex-end; max-width: 80%; padding: .6rem 1rem; border-radius: 1rem; background: #8883 }
.code { font: .85rem/1.5 monospace; padding: .6rem .8rem; border-radius: .4rem; background: #8882; width: 100% }
.call { width: 100%; border: 1px solid #8884; border-radius: .5rem }
.fault { color: var(--q-negative) }
.body--dark .fault { color: #f88 }
.text:empty { display: none }
"""
SEND = "(e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); emit(); } }"


def with_page(api: Starlette, address: str, *, is_kept: bool) -> FastAPI:
    """The application with its page. `address` is its own, with /v1. Once a process, as NiceGUI has one app."""
    http = httpx2.AsyncClient(timeout=None, trust_env=False)  # the served agent ends what takes too long
    client = openai.AsyncOpenAI(base_url=address, api_key="EMPTY", http_client=http, max_retries=0)
    whole = FastAPI(openapi_url=None)
    pages.middleware("http")(_confined)
    ui.run_with(
        whole,
        root=lambda: _Page(client, is_kept=is_kept).enter(""),
        mount_path=PATH,
        title="agentgrpo",
        favicon="💬",
        dark=None,
        tailwind=False,
        show_welcome_message=False,
    )
    whole.add_route(PATH, lambda _: RedirectResponse(f"{PATH}/"))
    whole.mount("/", api)
    return whole


async def _confined(request: Request, go_on: RequestResponseEndpoint) -> Response:
    response = await go_on(request)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _words(exc: BaseException) -> str:
    """What the server said of it, else what the client library says."""
    return server_message(exc) or str(exc)


class _Page:
    def __init__(self, client: openai.AsyncOpenAI, *, is_kept: bool) -> None:
        self._api, self._is_kept = client, is_kept
        self._said: list[Any] = []
        self._running: asyncio.Task[Any] | None = None
        ui.add_css(CSS)
        ui.context.client.on_delete(self._stop)
        self._whole = ui.column().classes("whole")

    async def enter(self, token: str) -> None:
        """The conversation for who has the token, else the question for it."""
        api = self._api.with_options(api_key=token or "EMPTY")
        try:
            self._model = (await api.models.list()).data[0].id
        except (openai.APIError, UnicodeError) as exc:
            return self._ask_token(_words(exc) if token else "")
        self._api = api
        await self._draw()

    def _ask_token(self, why: str) -> None:
        async def enter_token() -> None:
            await self.enter(field.value or "")

        self._whole.clear()
        with self._whole, ui.card().classes("self-center q-mt-xl"):
            ui.label("This agent asks for its token").classes("text-h6")
            field = ui.input("AGENT_API_TOKEN", password=True).classes("wide").props("autofocus")
            field.on("keydown.enter", enter_token)
            ui.label(why).classes("fault text")
            ui.button("Enter", on_click=enter_token).props("no-caps")

    async def _draw(self) -> None:
        self._whole.clear()
        with self._whole:
            with ui.row().classes("wide items-center no-wrap q-pt-sm"):
                ui.label(self._model).classes("text-h6 col ellipsis")
                self._keep = ui.switch("Keep what is said", value=self._is_kept)
                self._keep.set_visibility(self._is_kept)
                ui.button("New", icon="add", on_click=self._begin_anew).props("flat no-caps").classes("anew")
            self._scroll = ui.scroll_area().classes("wide col said")
            with ui.row().classes("wide items-center no-wrap"):
                self._box = ui.textarea(placeholder="Ask").props("autogrow outlined rows=1 autofocus").classes("col")
                self._box.on("keydown", self._ask, js_handler=SEND)
                self._button = ui.button(icon="send", on_click=self._ask_or_stop).props("round")
        await self._begin_anew()

    async def _begin_anew(self) -> None:
        await self._stop()
        self._said = []
        self._scroll.clear()
        with self._scroll:
            self._log = ui.column().classes("wide")

    async def _stop(self) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _ask_or_stop(self) -> None:
        if self._running:
            await self._stop()
        else:
            await self._ask()

    async def _ask(self) -> None:
        question = (self._box.value or "").strip()
        if self._running or not question:
            return
        self._running, self._box.value = asyncio.current_task(), ""
        self._button.props("icon=stop")
        with self._log:
            ui.label(question).classes("asked text")
            text, fault = ui.label().classes("text"), ui.label().classes("fault text")
            waiting = ui.spinner("dots", size="lg")
        self._scroll.scroll_to(percent=1)
        try:
            await self._answer(question, text)
            why = ""
        except (openai.APIError, httpx2.HTTPError, asyncio.CancelledError) as exc:
            why = _words(exc) or "stopped"
        finally:
            self._running = None
        if not self._whole.is_deleted:  # else the tab was closed
            fault.text = why
            waiting.set_visibility(False)
            self._button.props("icon=send")
            self._scroll.scroll_to(percent=1)

    async def _answer(self, question: str, text: ui.label) -> None:
        """Only what was answered counts as said. Raises openai.APIError."""
        messages = [*self._said, {"role": "user", "content": question}]
        more = {"tool_calls": True}
        if self._is_kept:
            more["store"] = bool(self._keep.value)
        last: Any = None
        stream = await self._api.chat.completions.create(
            model=self._model, messages=messages, stream=True, extra_body=more
        )
        async with stream:
            async for last in stream:
                text.text += last.choices[0].delta.content or ""
        self._said = [*messages, {"role": "assistant", "content": text.text}]
        with self._log:
            for call in last.sql_calls:
                _show_query(call["sql"], call["result"])
            for call in last.tool_calls:
                _show_call(call)
            if more.get("store"):
                self._thumbs(last.id)

    def _thumbs(self, answer: str) -> None:
        async def judge(score: int) -> None:
            try:
                await self._api.post("/feedback", body={"id": answer, "score": score}, cast_to=object)
            except openai.APIError as exc:
                ui.notify(_words(exc), type="negative")
                return
            for button, its in zip(buttons, (1, -1), strict=True):
                button.props(f"color={'primary' if its == score else 'grey'}")

        with ui.row().classes("thumbs q-gutter-none"):
            buttons = [
                ui.button(icon=icon, color="grey", on_click=partial(judge, score)).props("flat round size=sm")
                for icon, score in (("thumb_up", 1), ("thumb_down", -1))
            ]


def _show_query(sql: str, result: dict[str, Any]) -> None:
    names, rows = result["columns"], result["rows"]
    n_rows = f"{len(rows)} and more" if result["truncated"] else str(len(rows))
    title = "Query failed" if result["error"] else f"Query, rows: {n_rows}"
    with ui.expansion(title, value=True).classes("call"):
        ui.label(sql).classes("code text")
        if result["error"]:
            ui.label(result["error"]).classes("fault text")
            return
        columns = [{"name": str(n), "label": name, "field": str(n), "align": "left"} for n, name in enumerate(names)]
        cells = [{str(n): "NULL" if cell is None else str(cell) for n, cell in enumerate(row)} for row in rows]
        table = ui.table(columns=columns, rows=cells, row_key="0", pagination=10 if len(rows) > 10 else None)
        table.props("flat dense wrap-cells").classes("wide")


def _show_call(call: dict[str, Any]) -> None:
    with ui.expansion(f"{call['name']}: {call['outcome']}", value=True).classes("call"):
        for text in (call["arguments"], call["result"]):
            ui.label(text).classes("code text")
