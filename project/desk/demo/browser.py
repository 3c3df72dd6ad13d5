"""An operator's browser, as far as the demo needs one: cookies, forms with their CSRF token, what the page says."""

from __future__ import annotations

import html
import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Final

from project.desk.demo.failure import DemoFailed

SECONDS: Final = 15
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_SAID = re.compile(r'<(?:ul|p|div) class="(?:messagelist|errorlist|errornote)[^"]*"[^>]*>(.*?)</(?:ul|p|div)>', re.S)


class Browser:
    """Talks to one site at ``origin``, such as ``http://127.0.0.1:8000``. Paths begin with ``/``."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._opener = urllib.request.build_opener(
            # A proxy from the environment must not see what stays on this machine.
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
        )

    def get(self, path: str) -> str:
        """The page at ``path``, after redirects."""
        return self._open(path, None)[1]

    def submit(self, path: str, **fields: str) -> str:
        """Open the form at ``path``, send ``fields`` with its token, and give the page that follows.

        Raises ``DemoFailed`` with the page's own words when it shows the form again.
        """
        token = _TOKEN.search(self.get(path))
        if token is None:
            raise DemoFailed(f"The page {path} has no form to send.")
        address, page = self.send(path, {"csrfmiddlewaretoken": html.unescape(token[1]), **fields})
        if urllib.parse.urlsplit(address).path == urllib.parse.urlsplit(path).path:
            raise DemoFailed(f"The form at {path} was refused: {says(page) or 'it does not say why'}")
        return page

    def send(self, path: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Post ``fields`` as they are; the address and the page that one is led to."""
        return self._open(path, urllib.parse.urlencode(fields).encode())

    def _open(self, path: str, body: bytes | None) -> tuple[str, str]:
        request = urllib.request.Request(f"{self.origin}{path}", data=body, headers={"Referer": f"{self.origin}{path}"})
        try:
            with self._opener.open(request, timeout=SECONDS) as answered:
                return answered.url, answered.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                raise DemoFailed(f"{path} answered {error.code} {error.reason}.") from None
        except OSError as error:
            raise DemoFailed(f"{path} could not be opened: {error}.") from None


def says(page: str) -> str:
    """The messages and errors on an admin page, as text."""
    said = (html.unescape(re.sub(r"<[^>]+>", " ", part)) for part in _SAID.findall(page))
    return " ".join(" ".join(said).split())
