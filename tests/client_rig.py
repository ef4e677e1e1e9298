"""Both clients of the library as one, and a network between that loses, doubles and refuses what it is told to."""

import asyncio

import httpx

from largesse.client import AsyncClient, Client, Retry

QUICK = Retry(give_up_s=60, first_s=0.001, most_s=0.01)


class Both:
    """Calls the same of either client: `await ask.submit(...)`, and lists as lists. `kind`: sync or async."""

    def __init__(self, kind, **given):
        self.kind = kind
        self.client = (Client if kind == "sync" else AsyncClient)(**given)

    def __getattr__(self, name):
        call = getattr(self.client, name)

        async def called(*words, **named):
            if self.kind == "sync":
                return await asyncio.to_thread(lambda: listed(call(*words, **named)))
            found = call(*words, **named)
            if hasattr(found, "__aiter__"):
                return [each async for each in found]
            return await found

        return called


def listed(found):
    return list(found) if hasattr(found, "__next__") else found


class Faulty(httpx.AsyncBaseTransport):
    """A network in front of `inner`. `faults`: for each request in turn what happens to it: "lost" never arrives,
    "mute" arrives and its answer is lost, "twice" arrives twice, an answer's status stands for that answer without the
    request having arrived; "" and beyond the end: nothing."""

    def __init__(self, inner, faults=()):
        self.inner, self.faults = inner, list(faults)
        self.sent = []

    async def handle_async_request(self, request):
        fault = self.faults.pop(0) if self.faults else ""
        self.sent.append((request.method, request.url.path, fault))
        match fault:
            case "lost":
                raise httpx.ConnectError("lost on the way")
            case int():
                document = {"type": "urn:largesse:busy", "detail": "busy", "status": fault, "title": ""}
                return httpx.Response(fault, json=document, headers={"Retry-After": "0"}, request=request)
        body = await request.aread()
        response = await self._passed_on(request, body)
        if fault == "twice":
            response = await self._passed_on(request, body)
        if fault == "mute":
            raise httpx.ReadError("the answer is lost")
        return response

    async def _passed_on(self, request, body):
        again = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        return await self.inner.handle_async_request(again)
