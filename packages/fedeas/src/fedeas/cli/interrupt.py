"""Ctrl-C that is never lost.

An interrupt is raised at whatever line is running. Some libraries swallow it there, as pyarrow does
while it imports pandas, and the command would keep running; others abort the process, as torch does
while it is imported. So an import is completed first.
"""

import _thread
import os
import signal
import sys
import threading
from types import FrameType, TracebackType

_PATIENCE = 2.0  # seconds until an interrupt that was swallowed is raised again
_IMPORT = 0.1  # seconds until it is tried again after an import


class HeardInterrupts:
    """While entered, raise an interrupt again until it ends the command.

    Not while it is being handled: a command's own cleanup is left alone.
    """

    def __init__(self) -> None:
        self._over = threading.Event()

    def __enter__(self) -> "HeardInterrupts":
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        importing = _imports(frame)
        patience = _IMPORT if importing else _PATIENCE
        threading.Thread(target=self._look_again, args=(patience,), daemon=True).start()
        if not importing:
            raise KeyboardInterrupt

    def _look_again(self, patience: float) -> None:
        while not self._over.wait(patience):
            if not _handles_an_exception():
                _raise_interrupt()
                return


def _imports(frame: FrameType | None) -> bool:
    """Tell whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _raise_interrupt() -> None:
    """Send SIGINT to this process, which also ends the call that the main thread waits in."""
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGINT)
    else:  # on Windows, `os.kill` would end the process without any cleanup
        _thread.interrupt_main(signal.SIGINT)


def _handles_an_exception() -> bool:
    """Tell whether the main thread is in an `except` or `finally` block."""
    found = sys._current_exceptions().get(threading.main_thread().ident or 0)
    # Up to Python 3.11 a triple of type, exception and traceback.
    return (found[1] if isinstance(found, tuple) else found) is not None
