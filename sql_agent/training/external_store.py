"""A store of the user's own: whether one is meant, where it is, and whether it answers.

AGL_MANAGED_STORE=0 says that there is one; without an address it is `agl store` with its usual port on this machine.
Waiting covers a store that is still starting, which takes it ten seconds; another answer than a store's is an error
at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import httpx

from foundation.errors import UserError
from foundation.store_token import VARIABLE, token_headers
from sql_agent.config import StoreConfig

IS_MANAGED = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
USUAL_ADDRESS = "http://localhost:9999"
START_LIMIT_S = 30.0
LOOK_EVERY_S = 0.5
MONGO_LIMIT_S = 5.0


def store_address(store: StoreConfig) -> str:
    """The address of the store that is meant; "" for one of the run's own. Alone, AGL_MANAGED_STORE=0 means the usual.

    An address alone says AGL_MANAGED_STORE=0, to agent-lightning too. Raises UserError where the two contradict, and
    for what is neither 0 nor 1.
    """
    if store.external_address:
        os.environ.setdefault("AGL_MANAGED_STORE", "0")
    said = os.environ.get("AGL_MANAGED_STORE", "1")
    if (managed := IS_MANAGED.get(said.strip().lower())) is None:
        raise UserError(f"AGL_MANAGED_STORE={said}: must be 1 for a store of the run's own, or 0 for one of yours")
    address = store.external_address or ("" if managed else USUAL_ADDRESS)
    if address and managed:
        raise UserError(
            f"--store {address}: with AGL_MANAGED_STORE={os.environ['AGL_MANAGED_STORE']} agent-lightning would start "
            "a store of its own beside it. Set the variable to 0, or leave it out"
        )
    if address and store.mongo_uri:
        raise UserError(
            f"--mongo-uri and --store {address} exclude each other: give MongoDB to `agl store` "
            "instead, or unset AGL_MANAGED_STORE"
        )
    return address


def check_mongo(named: str, *, is_asked: bool) -> None:
    """MongoDB's address has the form of one, and where `is_asked` the server answers. Raises UserError."""
    from pymongo import MongoClient, uri_parser
    from pymongo.errors import PyMongoError

    address = os.path.expandvars(named)
    try:
        password = uri_parser.parse_uri(address)["password"]
        if password and address == named:
            raise UserError("--mongo-uri holds a password: put the address into a variable and give '$VARIABLE'")
        if is_asked:
            with MongoClient(address, serverSelectionTimeoutMS=int(1000 * MONGO_LIMIT_S)) as client:
                client.admin.command("ping")
    except (PyMongoError, ValueError) as exc:
        shown, why = "" if "@" in named else f" {named}", str(exc).partition(" (")[0].rstrip(".")
        raise UserError(f"--mongo-uri{shown}: {why}. Correct it, or leave it out") from None


def look_for_store(address: str) -> str:
    """What a dry run says of the store, which may still come. Raises UserError for what is no store."""
    if isinstance(why := _refusal(address), httpx.ConnectError):
        return f"store {address}: nothing answers there yet; a run waits {START_LIMIT_S:.0f} s for it, and then ends"
    if why:
        raise _no_store(address, why, waited_s=0)
    return f"store {address}: it answers"


def wait_for_store(address: str, *, say: Callable[[str], None]) -> None:
    """Return when the store answers its health route; `say` gets one line if it does not at once.

    Raises UserError when nothing is there after START_LIMIT_S, or something that is no store.
    """
    started, is_announced = time.monotonic(), False
    while (why := _refusal(address)) is not None:
        waited_s = time.monotonic() - started
        if not isinstance(why, httpx.ConnectError) or waited_s >= START_LIMIT_S:
            raise _no_store(address, why, waited_s=waited_s) from why
        if not is_announced:
            say(f"waiting up to {START_LIMIT_S:.0f} s for the store at {address}: it takes ten to start")
            is_announced = True
        time.sleep(LOOK_EVERY_S)


def _no_store(address: str, why: Exception, *, waited_s: float) -> UserError:
    return UserError(
        f"--store {address}: no agent-lightning store answers there after {waited_s:.0f} s ({_named(why)}). Start one "
        "with `python -m agl_plugin.store --port 9999` or `agl store --host 127.0.0.1 --port 9999`, or correct the "
        "address"
    )


def _named(why: Exception) -> str:
    refused = isinstance(why, httpx.HTTPStatusError) and why.response.status_code == 401
    return f"401: {VARIABLE} here is not the store's" if refused else type(why).__name__


def _refusal(address: str) -> Exception | None:
    try:
        httpx.get(
            f"{address.rstrip('/')}/v1/agl/health", headers=token_headers(), timeout=5.0, trust_env=False
        ).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        return exc
    return None
