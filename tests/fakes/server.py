"""A stand-in server: answers /health, and misbehaves on request. Standard library only."""

from __future__ import annotations

import argparse
import contextlib
import http.server
import signal
import sys
import time

DEEP = b"[" * 100_000 + b"]" * 100_000


def main() -> int:
    args = argparse.ArgumentParser()
    args.add_argument("--port", type=int, required=True)
    args.add_argument("--refuse", default="")
    args.add_argument("--status", type=int, default=200)
    args.add_argument("--unready", action="store_true")
    args.add_argument("--ignore-term", action="store_true")
    args.add_argument("--die", action="store_true")
    args.add_argument("--endless", action="store_true")
    args.add_argument("--last-word", default="")
    options = args.parse_args()
    if options.refuse:
        print(f"error: {options.refuse}\nusage: server [options]\n  --port N", flush=True)
        return 1
    if options.last_word:
        print(options.last_word, flush=True)
        return 7
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/die":
                print("about to abort", flush=True)
                signal.raise_signal(signal.SIGKILL)
            self.send_response(503 if options.unready else options.status)
            self.end_headers()
            self.wfile.write(DEEP if self.path == "/deep" else b"{}")
            with contextlib.suppress(OSError):
                while options.endless:
                    self.wfile.write(b" " * 65536)

        def log_message(self, *args: object) -> None:
            print("GET", self.path, flush=True)

    with http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
        print(f"listening {time.time()}", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
