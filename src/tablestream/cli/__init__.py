"""The command line: ``tablestream run``, ``explain``, ``diagram``, ``state``, ``verify`` and so on.

`commands` puts the commands together, and `exit_codes` has the exit codes of all of them:

====  =============================================================================================================
code  meaning
====  =============================================================================================================
0     success; a query ended by itself (``--once``), or was stopped by Ctrl-C after its micro-batch
1     `verify` found damage
2     the command could not run: wrong use, an error in the user's module, a checkpoint that does not fit
3     a query ended with an error
130   interrupted at once: Ctrl-C twice, or while no query was running; or the user did not agree
====  =============================================================================================================

Results go to standard output, progress and errors to standard error. With ``--json`` both are JSON lines. Only
``--debug`` shows tracebacks; it does not change the exit code.
"""

import sys

from tablestream.base.extras import install_hint

try:
    try:
        import rich as _rich  # noqa: F401 - imported to see whether it is there
        import typer as _typer  # noqa: F401 - the same
    except ModuleNotFoundError as missing:
        sys.stderr.write(f"The command line needs {missing.name}. {install_hint('cli')}\n")
        raise SystemExit(2) from missing
    from tablestream.cli.commands import app, main
except KeyboardInterrupt:  # Ctrl-C while it is imported, before a command can say so
    raise SystemExit(130) from None

__all__ = ["app", "main"]
