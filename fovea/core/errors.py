"""Every error of the product, sorted by what the caller does next.

FoveaError
├── RetryableError            try again, later or elsewhere
│   ├── Overloaded            the other side has no room now (may carry retry_after_s)
│   ├── Unavailable           the other side cannot be reached or is not ready
│   └── DeadlineExceeded      no answer in the time given
├── RejectedError             the same call will fail again; change what is sent
│   ├── Malformed             the input is not what it has to be
│   ├── TooLarge              the input is well formed but over a stated limit
│   ├── NotFound              what was named does not exist
│   ├── NotAllowed            the other side does not accept who is asking
│   ├── Incompatible          a good file, for another machine, runtime or version
│   └── UntrustedRelease      signature, digest or freshness does not hold
├── Cancelled                 the caller itself gave up; nobody retries
└── BrokenError               this process or its storage is at fault; a person or a restart is needed
    ├── DetectorFailed        the model could not run
    └── StoreCorrupt          bytes on disk are not the bytes that were written
"""


class FoveaError(Exception):
    """Root of the tree; never raised itself."""


class RetryableError(FoveaError):
    """The same call may succeed later or elsewhere."""


class Overloaded(RetryableError):
    """The other side refused for lack of room; `retry_after_s` is its own estimate, if it gave one."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(RetryableError):
    """The other side cannot be reached, or is not ready to serve."""


class DeadlineExceeded(RetryableError):
    """No answer came in the time that was given."""


class RejectedError(FoveaError):
    """The same call will fail again: the message says what was wrong and what was expected."""


class Malformed(RejectedError):
    """The input is not what it has to be."""


class TooLarge(RejectedError):
    """The input is over a stated limit; retrying the same bytes is pointless."""


class NotFound(RejectedError):
    """What was named does not exist; the message lists what does."""


class NotAllowed(RejectedError):
    """The other side does not know the caller, or does not let it do this."""


class Incompatible(RejectedError):
    """A sound file, meant for another machine, runtime, input or version."""


class UntrustedRelease(RejectedError):
    """A signature, digest or freshness rule does not hold."""


class Cancelled(FoveaError):
    """The caller gave up; not a failure of either side."""


class BrokenError(FoveaError):
    """This process or its storage is at fault."""


class DetectorFailed(BrokenError):
    """The model could not be run on an input that was fine."""


class StoreCorrupt(BrokenError):
    """Bytes on disk are not the bytes that were written."""
