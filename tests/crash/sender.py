"""Sends messages one after the other, each under its own key, and says after each that it is acknowledged.

    python -m tests.crash.sender DB MESSAGES

Two of these send the same messages at once, and are killed and started again.
"""

from __future__ import annotations

import asyncio
import sys

from onward.app import Onward

CHATS = 2


def chat_of(number: int) -> str:
    return f"chat-{number % CHATS}"


def text_of(number: int) -> str:
    return f"build page {number}"


async def send_all(db: str, messages: int) -> None:
    async with Onward(db) as app:
        for number in range(messages):
            sent = await app.send(chat_of(number), text_of(number), key=f"k{number}")
            print(number, sent["message"], flush=True)


if __name__ == "__main__":
    asyncio.run(send_all(sys.argv[1], int(sys.argv[2])))
