"""The command line: one file a command; what they share is in `tulle.cli.command_runner`.

Here is only the way in, which imports nothing else, so that Ctrl-C is answered in one line also during imports.
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing` would cost 10 ms, in which Ctrl-C ends in a traceback
if TYPE_CHECKING:
    from collections.abc import Sequence

_RESULTS_DEPEND_ON = "nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        from tulle.cli.command_runner import run_command
    except KeyboardInterrupt:  # nothing was read, and nothing was spent
        import sys

        given = sys.argv[1:] if arguments is None else arguments
        if "--json" in given:
            print('{"error": {"kind": "interrupted", "message": "interrupted", "exit_code": 130}}', flush=True)
        else:
            print("tulle: interrupted", file=sys.stderr, flush=True)
        return 130
    return run_command(arguments)
