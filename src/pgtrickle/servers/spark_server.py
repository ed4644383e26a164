"""The Spark Connect server that pgtrickle starts when `spark_remote` names none: a JVM of its own, on loopback, with a
token.

It is started by `java` directly: Spark's own launcher insists on a Java module that the wheel's JRE does not have.
The token goes through the environment, never the command line, where everybody could read it.
"""

from __future__ import annotations

import atexit
import importlib.util
import ipaddress
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from pgtrickle.errors import ConfigError, TransientError
from pgtrickle.servers.java import Java, find_java
from pgtrickle.servers.server_process import GuardedProcess, free_port, private_directory
from pgtrickle.settings import Settings

NEED_MIB = 300
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  -- a name

# Spark's documented module options (JavaModuleOptions), without jdk.incubator.vector.
OPENS = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

# For the small path: a single-partition plan of a few hundred rows, where planning is most of the cost.
# Code generation off is a trade: 100 rows, p50 47-49 ms against 52 ms with it (quiet machine, two runs and one), but an
# aggregate over 120 M rows 9-43 s against 3-5 s. Bulk work needs a session that turns both settings on again.
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # AQE re-plans at shuffles, which the small path has none of
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.ansi.enabled": "true",  # overflow and bad casts raise instead of giving NULL: never silently wrong
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ui.retainedExecutions": "1",  # not used; the default keeps a thousand plans on the heap
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    # The default of 100 classes is less than a few queries have; each would be compiled again at every refresh.
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.scheduler.mode": "FAIR",  # during a bulk job a small one took 0.1-0.6 s; with FIFO, 14 s
    "spark.connect.grpc.maxInboundMessageSize": str(512 << 20),
    "spark.sql.catalogImplementation": "in-memory",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}
AUTHENTICATE = "spark.authenticate"
LOCAL_CLUSTER = "local-cluster["  # the driver starts workers
SCALA = "2.13"  # of the wheel's jars

LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


class SparkServer:
    """`start` returns at once; `wait_ready` waits for the open port. `stop` ends the server and removes its files."""

    def __init__(self, directory: Path, settings: Settings, java: Java, jars: Path) -> None:
        self._directory = directory
        self._settings = settings
        self._java = java
        self._jars = jars
        self._token = secrets.token_urlsafe(32)
        self._ready = False
        self.log = directory / "spark.log"
        self._launch()

    @classmethod
    def start(cls, settings: Settings | None = None, *, warn: Callable[[str], None] = lambda _line: None) -> Self:
        """`warn` gets one line when JAVA_HOME is unsuitable and another Java is used."""
        settings = settings or Settings()
        _require_authentication(settings)
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None or not (Path(spec.origin).parent / "jars").is_dir():
            raise ConfigError("Spark is not installed", hint="pip install 'pyspark[connect]', or set spark_remote")
        java = find_java(settings.java_home, os.environ, warn)
        directory = private_directory("pgtrickle-spark-", need_mib=NEED_MIB)
        try:
            directory.chmod(0o700)
            (directory / "log4j2.properties").write_text(LOGGING)
            self = cls(directory, settings, java, Path(spec.origin).parent / "jars")
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        atexit.register(self.stop)
        return self

    def _launch(self) -> None:
        self._port = free_port()
        conf = {
            **CONF,
            "spark.driver.host": self._settings.spark_driver_host,
            "spark.driver.bindAddress": self._settings.spark_driver_host,
            "spark.local.dir": str(self._directory / "scratch"),
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
            "spark.sql.artifact.isolation.enabled": "false",
            **self._settings.spark_conf,
            "spark.connect.grpc.binding.port": str(self._port),
        }
        properties = _in_memory(conf, self._directory)
        command = [
            str(self._java.path),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
            "-XX:+IgnoreUnrecognizedVMOptions",
            # Without this or noUnsafe=false below Arrow's allocator fails on Java 25.
            *(("--sun-misc-unsafe-memory-access=allow",) if self._java.version >= 23 else ()),
            "--enable-native-access=ALL-UNNAMED",
            "-Djdk.reflect.useDirectMethodHandle=false",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Dio.netty.noUnsafe=false",
            "-Dfile.encoding=UTF-8",
            "-Duser.timezone=UTC",
            f"-Djava.io.tmpdir={self._directory}",
            f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}",
            f"-Xmx{self._settings.spark_driver_memory_mb}m",
            "-XX:+UseParallelGC" if (os.cpu_count() or 1) <= 4 else "-XX:+UseG1GC",
            "-XX:+ExitOnOutOfMemoryError",
            "-cp",
            f"{self._jars}/*",
            "org.apache.spark.deploy.SparkSubmit",
            "--master",
            self._settings.spark_master,
            "--properties-file",
            f"/dev/fd/{properties}",
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            "spark-internal",
        ]
        env = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("SPARK_", "PYSPARK_", "_JAVA", "JAVA_TOOL", "JDK_"))
            },
            **self._for_workers(),
            "SPARK_LOCAL_IP": self._settings.spark_driver_host,
            **({"SPARK_LOCAL_HOSTNAME": "localhost"} if is_loopback(self._settings.spark_driver_host) else {}),
            "PYSPARK_PYTHON": self._settings.spark_python or sys.executable,
            "PYSPARK_DRIVER_PYTHON": self._settings.spark_python or sys.executable,
            TOKEN_VARIABLE: self._token,
        }
        try:
            self._process = GuardedProcess(
                command,
                log=self.log,
                env=env,
                signals=(("SIGTERM", 5.0),),
                remove=(self._directory,),
                cwd=self._directory,
                fds=(properties,),
            )
        finally:
            os.close(properties)

    def _for_workers(self) -> dict[str, str]:
        """Variables for workers that the driver starts (local-cluster). With other masters SPARK_HOME is not set:
        Python processes would import Spark from there, where it has no byte code."""
        if not self._settings.spark_master.startswith(LOCAL_CLUSTER):
            return {}
        return {"SPARK_HOME": str(self._jars.parent), "SPARK_SCALA_VERSION": SCALA, "JAVA_HOME": str(self._java.home)}

    @property
    def url(self) -> str:
        """For `SparkSession.builder.remote`. The host is localhost: the client sends a token in clear to no other."""
        return f"sc://localhost:{self._port}/;token={self._token}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return self._port

    def alive(self) -> bool:
        return self._process.alive()

    def healthy(self) -> bool:
        """Whether the port answers."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 0.5):
                return self._process.alive()
        except OSError:
            return False

    def answers(self, seconds: float) -> bool:
        """Whether the server itself answers: for a server that hangs the kernel still accepts connections."""
        return speaks_http2(self._port, seconds)

    def wait_ready(
        self, timeout: float | None = None, progress: Callable[[float], None] = lambda _seconds: None
    ) -> None:
        """Returns when the port is open; `progress` gets the seconds waited so far."""
        limit = self._settings.spark_start_timeout_s if timeout is None else timeout
        began = time.monotonic()
        while not self.healthy():
            waited = time.monotonic() - began
            if not self._process.alive():
                text = self.log_tail()
                if "Address already in use" in text or "BindException" in text:
                    self._process.wait(5)
                    self.log.unlink(missing_ok=True)
                    self._launch()  # another process took the port before Spark did
                    continue
                raise _explain(text)
            if waited > limit:
                self.stop()
                raise TransientError(
                    f"Spark was not ready after {limit:.0f} s", hint="raise spark_start_timeout_s on a slow machine"
                )
            progress(waited)
            time.sleep(0.05)

    def log_tail(self, size: int = 20_000) -> str:
        try:
            return self.log.read_bytes()[-size:].decode(errors="replace")
        except OSError:
            return ""

    def kill(self) -> None:
        """SIGKILL: a server that hangs reacts to no other signal. Tests use it as a crash."""
        self._process.signal(signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; safe to call twice."""
        atexit.unregister(self.stop)
        self._process.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _require_authentication(settings: Settings) -> None:
    """Refuses a driver address that other machines reach without authentication: they could run code in the driver."""
    if not is_loopback(settings.spark_driver_host) and AUTHENTICATE not in settings.spark_conf:
        raise ConfigError(
            f"spark_driver_host = {settings.spark_driver_host}: other machines could run code in Spark",
            hint=f"set {AUTHENTICATE}=true and spark.authenticate.secret in spark_conf, here and on the cluster; "
            f"{AUTHENTICATE}=false if only trusted machines reach this one",
        )


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # and an empty SETTINGS frame


def speaks_http2(port: int, seconds: float) -> bool:
    """gRPC is HTTP/2, whose server begins with a SETTINGS frame."""
    try:
        with socket.create_connection(("127.0.0.1", port), seconds) as connection:
            connection.settimeout(seconds)
            connection.sendall(_PREFACE)
            return len(connection.recv(9)) > 0
    except OSError:
        return False


def _in_memory(conf: Mapping[str, str], directory: Path) -> int:
    """An unlinked open file with the settings, some of which may be secrets: the command line is
    visible to all users of the machine."""
    lines = [f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items()]
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("spark.properties")
    else:
        handle, name = tempfile.mkstemp(dir=directory)
        Path(name).unlink()
    with os.fdopen(os.dup(handle), "w", encoding="utf-8") as file:
        file.writelines(lines)
    return handle


def _escaped(text: str) -> str:
    """For a properties file of Java."""
    return re.sub(r"[\\=: #!]", r"\\\g<0>", text).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _explain(text: str) -> ConfigError:
    if "No space left on device" in text:
        return ConfigError(
            "Spark did not start: no disk space left", hint="free some space, or set TMPDIR to another file system"
        )
    if "Could not reserve enough space" in text or "insufficient memory" in text or "Cannot allocate memory" in text:
        return ConfigError("Spark did not start: not enough memory", hint="lower spark_driver_memory_mb")
    causes = [line for line in text.splitlines() if "Exception" in line or "Error" in line] or text.strip().splitlines()
    return ConfigError(f"Spark did not start: {(causes or ['no output'])[0].strip()}")
