"""What a client can do on a bare connection: be slow, be silent, send too much; TLS, Unix sockets, IPv6."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from tests.serve.load import wait_until
from tests.serve.pictures import png
from tests.serve.running_server import RunningServer

Start = Callable[..., RunningServer]
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
PREVIEW = b"POST /v1/preview HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"


def connect(server: RunningServer) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def read_to_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def read_answer(connection: socket.socket) -> bytes:
    """One answer with a body of JSON."""
    data = b""
    while not data.endswith(b"}"):
        data += connection.recv(65536)
    return data


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, networks: tuple[Path, Path]) -> Iterator[RunningServer]:
    server = RunningServer(
        networks[0],
        "--idle-seconds",
        "1",
        "--body-seconds",
        "1",
        "--max-header-bytes",
        "8192",
        "--max-connections",
        "8",
    )
    yield server
    server.close()


@pytest.mark.parametrize("first", [False, True], ids=["at once", "after a request"])
@pytest.mark.parametrize("part", [b"", b"GET /heal", b"POST /v1/classify HTTP/1.1\r\nContent-Le"])
def test_a_head_that_does_not_arrive_closes_the_connection(impatient: RunningServer, first: bool, part: bytes) -> None:
    """Defect 4: after one complete request, half of a second head was kept without a timer."""
    with connect(impatient) as connection:
        if first:
            connection.sendall(GET)
            assert read_answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(part)
        assert read_to_end(connection) == b""


@pytest.mark.parametrize("first", [False, True], ids=["at once", "after a request"])
@pytest.mark.parametrize(
    "path", ["/v1/classify", "/v1/classify/batch", "/v1/preview", "/v2/models/model/infer", "/v2/repository/index"]
)
def test_a_body_that_does_not_arrive_is_answered_408(impatient: RunningServer, first: bool, path: str) -> None:
    """Defect 4: an unfinished body was kept without a timer."""
    model = httpx2.get(f"{impatient.url}/v1/models").json()["models"][0]["name"]
    head = f"POST {path.replace('/model/', f'/{model}/')} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    head += "Content-Type: multipart/form-data; boundary=b\r\n\r\nabc"
    with connect(impatient) as connection:
        if first:
            connection.sendall(GET)
            read_answer(connection)
        connection.sendall(head.encode())
        answer = read_answer(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"did not arrive within 1 s" in answer
        assert read_to_end(connection) == b"", "the connection is closed"


@pytest.mark.parametrize(("count", "size"), [(200, 10), (3000, 900), (1, 100_000)])
def test_too_many_or_too_long_headers_are_refused(impatient: RunningServer, count: int, size: int) -> None:
    """Defect 5: 19 MB of headers were taken."""
    headers = b"".join(b"a%d: %s\r\n" % (number, b"x" * size) for number in range(count))
    with connect(impatient) as connection:
        with contextlib.suppress(OSError):  # it need not read them
            connection.sendall(GET[:-2] + headers + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 431")


def test_there_are_not_more_connections_than_allowed(impatient: RunningServer) -> None:
    """Defect 5: connections were without a limit. More than allowed wait until others close."""
    connections = [connect(impatient) for _ in range(8)]
    wait_until(lambda: files_of(impatient) >= 8, "eight connections")
    with connect(impatient) as late:
        late.settimeout(0.3)
        late.sendall(GET)
        with pytest.raises(TimeoutError):
            late.recv(10)
        for connection in connections:
            connection.close()
        late.settimeout(60)
        assert late.recv(15) == b"HTTP/1.1 200 OK"


def files_of(server: RunningServer) -> int:
    links = [file.readlink() for pid in server.workers() for file in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(str(link).startswith("socket:") for link in links)


def test_the_limit_of_files_is_never_reached(networks: tuple[Path, Path]) -> None:
    """Defect 6: at the limit of open files, the accept loop took all of a processor."""
    command = "import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
    command += "runpy.run_module('bitedge.cli', run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "serve", str(networks[0]), "--port", "0", "--idle-seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        host, _, port = process.stdout.readline().rpartition("/")[2].strip().rpartition(":")
        connections = [socket.create_connection((host, int(port)), timeout=60) for _ in range(100)]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        before = sum(map(cpu_seconds, children))
        time.sleep(2)  # the time over which the processor is measured, not a condition
        assert sum(map(cpu_seconds, children)) - before < 0.5
        for connection in connections[:-1]:
            connection.close()
        connections[-1].sendall(GET)
        assert connections[-1].recv(15) == b"HTTP/1.1 200 OK"
        connections[-1].close()
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()


def cpu_seconds(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_every_get_has_a_head(shared_server: RunningServer) -> None:
    """Defect 24: HEAD was answered 405."""
    for path in ("/", "/healthz", "/readyz", "/metrics", "/v1/models", "/openapi.json", "/v2", "/static/app.js"):
        got, head = httpx2.get(shared_server.url + path), httpx2.head(shared_server.url + path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == got.headers["content-type"]
    assert httpx2.head(f"{shared_server.url}/v1/classify").status_code == 405


def test_an_early_answer_can_be_read(shared_server: RunningServer) -> None:
    """A request that is refused before its body is read still gets its answer."""
    with connect(shared_server) as connection:
        connection.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(bytes(65536))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_stalled_request_holds_its_bytes_and_others_are_shed(start_server: Start) -> None:
    """Defect 16: bodies that were arriving did not count."""
    server = start_server("--max-body-bytes", "4096", "--max-bytes-in-flight", "8192", "--body-seconds", "60")
    head = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nabc"
    with connect(server) as one, connect(server) as two:
        for connection in (one, two):
            connection.sendall(head)

        def shed() -> bool:
            answer = httpx2.post(f"{server.url}/v1/classify", content=png())
            return answer.status_code == 503 and "8000 of 8192 bytes" in answer.json()["error"]

        wait_until(shed, "a full budget of bytes")
    wait_until(
        lambda: httpx2.post(f"{server.url}/v1/classify", content=png()).status_code == 200, "bytes that are free again"
    )


def test_a_unix_socket(networks: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = RunningServer(networks[0], "--unix-socket", str(path))
    try:
        assert server.url == f"unix:{path}"
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path))) as client:
            assert client.post("http://x/v1/classify", content=png()).status_code == 200
        assert path.stat().st_mode & 0o777 == 0o660
        assert server.stop() == 0
        assert not path.exists()
    finally:
        server.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_ipv6(networks: tuple[Path, Path]) -> None:
    server = RunningServer(networks[0], "--host", "::1")
    try:
        assert server.url.startswith("http://[::1]:")
        assert httpx2.post(f"{server.url}/v1/classify", content=png()).status_code == 200
    finally:
        server.close()


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_tls_and_a_root_path(networks: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    server = RunningServer(networks[0], "--tls-cert", str(cert), "--tls-key", str(key), "--root-path", "/net")
    try:
        assert server.url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=str(cert))
        with httpx2.Client(verify=trust) as client:
            assert client.post(f"{server.url}/v1/classify", content=png()).status_code == 200
            assert client.get(f"{server.url}/openapi.json").json()["servers"] == [{"url": "/net"}]
            page = client.get(f"{server.url}/").text
            assert 'src="static/app.js"' in page, "relative, so that it works below a prefix"
    finally:
        server.close()


def test_the_descriptor_limit_of_this_process_is_as_it_was() -> None:
    from bitedge.serve.security.limits import RESERVED_FILES, connection_limit

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert connection_limit(10) == 10
    assert connection_limit(before[1] + 1) == before[1] - RESERVED_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
