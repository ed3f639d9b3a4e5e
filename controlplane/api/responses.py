"""Answers to requests."""

from http import HTTPStatus

import msgspec
from aiohttp import web


def json_answer(body: msgspec.Struct, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
