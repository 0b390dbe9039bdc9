"""An export that is ended while the object store keeps it waiting leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.unit.cli.test_checkpoint_judging import CHECKPOINT

URI = "jobs/j/step-00000030/gen-1/manifest.json"
SHARD = {"rank": 0, "uri": "jobs/j/step-00000030/gen-1/rank-00000.shard", "bytes": 9_000_000}
MANIFEST = {"job_id": "j", "step": 30, "generation": 1, "shards": [{**SHARD, "checksum": "aa"}]}
ENDED_S_MAX = 20.0  # a thread that waits for the store would keep it for a minute


@pytest.fixture(params=[0, 5_000_000], ids=["says nothing", "stops half-way"])
def stalled(monkeypatch, request):
    """A store that has the manifest, and of the shard sends so much (0: no answer) and no more."""
    reached, over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.end_headers()

        def do_GET(self):
            if self.path.endswith(".shard"):
                if request.param:
                    self.send_response(200)
                    self.send_header("content-length", str(SHARD["bytes"]))
                    self.end_headers()
                    self.wfile.write(bytes(request.param))
                reached.set()
                over.wait()
                return
            body = json.dumps(MANIFEST).encode()
            if "location" in self.path:
                body = b'<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"/>'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("EVERSTEP_S3_ENDPOINT", f"127.0.0.1:{server.server_port}")
    monkeypatch.setenv("EVERSTEP_S3_SECURE", "false")
    monkeypatch.setenv("EVERSTEP_S3_ACCESS_KEY", "key")
    monkeypatch.setenv("EVERSTEP_S3_SECRET_KEY", "secret-secret")
    yield reached
    over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_export_that_is_ended_while_it_waits_leaves_nothing_and_ends_at_once(
    services, stalled, tmp_path, ending
):
    """What it was writing is gone, and no thread keeps the process."""
    found = {**CHECKPOINT, "manifest_uri": URI, "shards": MANIFEST["shards"]}
    services.on("GET", "/v1/checkpoints/j/30", found)
    export = subprocess.Popen(
        [sys.executable, "-m", "everstep.cli", "checkpoints", "export", "j", "30", "--out", "out"],
        cwd=tmp_path,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert stalled.wait(60)
        assert list(tmp_path.iterdir()) != []
        export.send_signal(ending)
        assert export.wait(ENDED_S_MAX) == 128 + ending, export.communicate()[0]
        assert list(tmp_path.iterdir()) == []
    finally:
        export.kill()
        export.wait()
