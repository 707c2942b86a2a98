"""Runtimes with threads of their own under the broker: they work, and are refused one thing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from host_features import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

FILES = 40

# Each makes files from several threads, tries to change one that it may not, and says what came.
NODE = """
const fs = require("fs"), { Worker, isMainThread, workerData } = require("worker_threads");
const make = (n) => { for (let i = 0; i < 10; i++) fs.writeFileSync(`made-${n}-${i}`, "x"); };
if (isMainThread) {
  const done = [0, 1, 2, 3].map((n) => new Promise((resolve) =>
    new Worker(__filename, { workerData: n }).on("exit", resolve)));
  Promise.all(done).then(() => {
    try { fs.writeFileSync("kept", "changed"); console.log("changed"); }
    catch (error) { console.log(error.code); }
  });
} else make(workerData);
"""
JAVA = """
import java.nio.file.*;

public class Main {
  public static void main(String[] words) throws Exception {
    Thread[] threads = new Thread[4];
    for (int n = 0; n < 4; n++) {
      final int own = n;
      threads[n] = new Thread(() -> {
        try {
          for (int i = 0; i < 10; i++)
            Files.write(Path.of("made-" + own + "-" + i), new byte[1],
              StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        } catch (Exception error) { System.out.println(error); }
      });
      threads[n].start();
    }
    for (Thread thread : threads) thread.join();
    try {
      Files.write(Path.of("kept"), new byte[1]);
      System.out.println("changed");
    } catch (AccessDeniedException error) { System.out.println("EACCES"); }
  }
}
"""
# As Go's runtime does it: no libc, threads by clone, a signal every now and then to preempt them.
STATIC = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static void nothing(int number) { (void)number; }

static void *make(void *place) {
  char name[64];
  for (int i = 0; i < 10; i++) {
    snprintf(name, sizeof name, "made-%ld-%d", (long)place, i);
    long made = syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0) return (void *)(long)errno;
    close(made);
  }
  return 0;
}

int main(void) {
  struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGURG, &act, 0);
  act.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &act, 0);
  struct itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, 0);
  pthread_t threads[4];
  for (long n = 0; n < 4; n++) pthread_create(&threads[n], 0, make, (void *)n);
  for (int n = 0; n < 4; n++) {
    void *fault;
    for (int i = 0; i < 20; i++) pthread_kill(threads[n], SIGURG);
    pthread_join(threads[n], &fault);
    if (fault) printf("%s\\n", strerror((int)(long)fault));
  }
  puts(syscall(SYS_openat, AT_FDCWD, "kept", O_WRONLY | O_TRUNC) < 0 ? "EACCES" : "changed");
}
"""
GO = """
package main

import (
	"fmt"
	"os"
	"sync"
)

func main() {
	var all sync.WaitGroup
	for n := 0; n < 4; n++ {
		all.Add(1)
		go func(n int) {
			defer all.Done()
			for i := 0; i < 10; i++ {
				if err := os.WriteFile(fmt.Sprintf("made-%d-%d", n, i), nil, 0600); err != nil {
					fmt.Println(err)
				}
			}
		}(n)
	}
	all.Wait()
	if err := os.WriteFile("kept", nil, 0600); os.IsPermission(err) {
		fmt.Println("EACCES")
	} else {
		fmt.Println("changed")
	}
}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "kept").write_text("kept")
    return folder


def program(name: str) -> str:
    require(name)
    return os.path.realpath(shutil.which(name) or name)


def node(at: Path) -> tuple[list[str], list[str]]:
    (at / "main.js").write_text(NODE)
    return [], [program("node"), str(at / "main.js")]


def java(at: Path) -> tuple[list[str], list[str]]:
    runtime = os.path.dirname(os.path.dirname(program("java")))
    (at / "Main.java").write_text(JAVA)
    if not shutil.which("javac"):
        require("javac")
    subprocess.run(["javac", "-d", str(at), str(at / "Main.java")], check=True)
    rules = ["--read", runtime, "--read", "/proc", "--read", "/sys/fs/cgroup"]
    rules += ["--read", f"/etc/{os.path.basename(runtime).rpartition('-')[0]}"]
    return rules, [program("java"), "-XX:-UsePerfData", "-cp", str(at), "Main"]


def static(at: Path) -> tuple[list[str], list[str]]:
    require("gcc")
    (at / "main.c").write_text(STATIC)
    words = ["gcc", "-static", "-pthread", "-o", str(at / "main"), str(at / "main.c")]
    subprocess.run(words, check=True)
    return [], [str(at / "main")]


def go(at: Path) -> tuple[list[str], list[str]]:
    (at / "main.go").write_text(GO)
    words = [program("go"), "build", "-o", str(at / "main"), str(at / "main.go")]
    caches = {"GOCACHE": str(at / "cache"), "GOPATH": str(at / "path"), "CGO_ENABLED": "0"}
    subprocess.run(words, check=True, env={**os.environ, **caches})
    return [], [str(at / "main")]


RUNTIMES = {"node": node, "java": java, "static": static, "go": go}


def check(at: Path, output: str) -> None:
    assert output == "EACCES\n"
    assert len(list(at.glob("made-*"))) == FILES
    assert (at / "kept").read_text() == "kept"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_creates_with_its_threads_and_changes_nothing(
    runtime: str, work: Path, tmp_path: Path, launch: Launch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rules, command = RUNTIMES[runtime](source)
    free = work.parent / "free"
    free.mkdir()
    (free / "kept").write_text("kept")
    control = subprocess.run(command, cwd=free, capture_output=True, text=True, check=True)
    assert control.stdout == "changed\n"
    result = launch(
        *rules, "--read", source, "--read", work, "--create", work, "--", *command, cwd=work
    )
    assert result.stderr == ""
    check(work, result.stdout)


@contextmanager
def answering(at: Path) -> Iterator[int]:
    """Yield the socket of somebody who approves what is created there, and nothing else."""
    ours, theirs = socket.socketpair()

    def answer() -> None:
        for line in ours.makefile():
            asked = json.loads(line)
            if "id" not in asked:
                continue
            yes = asked["operation"] == "create" and asked["target"].startswith(f"{at}/made")
            reply = {"id": asked["id"], "answer": "yes" if yes else "no"}
            ours.sendall(json.dumps(reply).encode() + b"\n")

    thread = threading.Thread(target=answer)
    thread.start()
    with ours, theirs:
        yield theirs.fileno()
        theirs.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_waits_for_answers(
    runtime: str, work: Path, tmp_path: Path, launch: Launch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rules, command = RUNTIMES[runtime](source)
    with answering(work) as desk:
        options = ["--supervised", "--ask-fd", str(desk), *rules, "--read", str(source)]
        result = launch(*options, "--read", work, "--", *command, cwd=work, keep=(desk,))
    check(work, result.stdout)
