"""Text from elsewhere on its way to a terminal, which obeys some of what it is shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with everything but line ends and what can be seen replaced by the mark for unreadable characters: names
    come over the network, and an escape sequence in one could rewrite what stands on the screen."""
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)
