"""Notices from a file, for tests and for machines that another program watches."""

import asyncio
from pathlib import Path

from agents.clouds.interface import Notice, Tell
from runtime.logs import Once, logger

FILE_EVERY_S = 0.1


class NoticeFile:
    """A file that holds the seconds until the machine ends; no notice while it is missing or empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_once = Once()

    async def watch(self, tell: Tell) -> None:
        last = self._read()
        tell(last)
        while True:
            await asyncio.sleep(FILE_EVERY_S)
            now = self._read()
            if now != last:
                last = now
                tell(now)

    def _read(self) -> Notice | None:
        try:
            text = self._path.read_text().strip()
            return Notice(max(0.0, float(text)), f"announced in {self._path.name}") if text else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            if self._log_once(str(error)):
                logger().warning("notice_file_unreadable", path=str(self._path), why=str(error))
            return None
