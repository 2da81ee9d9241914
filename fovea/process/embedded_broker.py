"""A small MQTT broker for demos and tests: anonymous, in memory, on one address; not for the open network."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys

from fovea.core.errors import FoveaError, Incompatible, Malformed, Unavailable

_SHUTDOWN_S = 1.0


def run_broker(address: str) -> None:
    """Serves MQTT 3.1.1 at host:port until SIGTERM or SIGINT; to be called on the main thread.

    Raises Malformed for an address that is none, Unavailable where it cannot listen there, Incompatible where the
    broker is not installed (`pip install fovea[demo]`).
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise Malformed(f"broker address: expected host:port with a port of 1 to 65535, got {address!r:.100}")
    # It reports every client at INFO, and every connection that breaks as an error with a traceback.
    for chatty in ("amqtt", "transitions"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    asyncio.run(_serve(f"{host}:{int(port)}"))


async def _serve(bind: str) -> None:
    try:
        from amqtt.broker import Broker
        from amqtt.errors import BrokerError
    except ImportError as error:
        raise Incompatible("the embedded broker needs amqtt: pip install 'fovea[demo]'") from error
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": bind}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    try:
        await broker.start()
    except (BrokerError, OSError) as error:
        raise Unavailable(f"broker: cannot listen at {bind}: {error}") from error
    await told_to_stop.wait()
    # Nothing is kept, so nothing is lost when clients do not let go in time.
    with contextlib.suppress(BrokerError, TimeoutError):
        await asyncio.wait_for(broker.shutdown(), _SHUTDOWN_S)


def main(arguments: list[str]) -> int:
    """`python -m fovea.process.embedded_broker HOST:PORT`."""
    if len(arguments) != 1:
        print("usage: python -m fovea.process.embedded_broker HOST:PORT", file=sys.stderr)
        return 2
    try:
        run_broker(arguments[0])
    except FoveaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
