"""tgc chat on a terminal (a pty): prompt, history, Ctrl-C, Ctrl-D, Ctrl-Z, signals, two columns.

    python3 tests/chat/terminal.py build/tgc PLAN TEMPLATE FOLDER [SEED]      (test_chat_command.sh;
            a plan
                                                      with a long context: its answer is stopped)
"""
import fcntl
import os
import pty
import random
import re
import select
import signal
import struct
import sys
import termios
import time

tgc, model, template, folder = sys.argv[1:5]
folder = os.path.abspath(folder)
random.seed(sys.argv[5] if len(sys.argv) > 5 else time.time_ns())


def execute(args):
    # libedit and ncurses do not free all of theirs
    os.environ.update(HOME=folder, TERM="xterm", XDG_STATE_HOME="", ASAN_OPTIONS="detect_leaks=0")
    # a job in the background has them ignored
    for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(s, signal.SIG_DFL)
    os.execv(tgc, [tgc, "chat", *args, "--template", template, "--device", "cpu", "--temp", "0"])


def start(args, columns=80):
    pid, fd = pty.fork()
    if not pid:
        execute(args)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return pid, fd


def wait_for(fd, what, seconds=60):
    seen, end = "", time.time() + seconds
    while not re.search(what, seen):
        left = end - time.time()
        if left <= 0:
            sys.exit("no %r within %d s; seen:\n%s" % (what, seconds, seen))
        if select.select([fd], [], [], left)[0]:
            try:
                data = os.read(fd, 4096)
            except OSError:
                data = b""
            if not data:
                sys.exit("ended before %r; seen:\n%s" % (what, seen))
            seen += data.decode("utf-8", "replace")
    return seen


def ended(pid, fd):
    """What is said until the end, and the exit code."""
    seen, end = "", time.time() + 30
    while True:
        if not select.select([fd], [], [], max(0, end - time.time()))[0]:
            os.kill(pid, 9)
            sys.exit("it does not end; seen:\n%r" % seen)
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data.decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def leave(pid, fd):
    os.write(fd, b"\x04")
    return ended(pid, fd)


def is_as_before(fd):
    flags = termios.tcgetattr(fd)[3]
    return all(flags & f for f in (termios.ICANON, termios.ECHO, termios.ISIG))


# an answer without end, stopped; the next message is answered all the same
pid, fd = start([model, "--ignore-eos"])
wait_for(fd, "> $")
for animal in b"cat", b"dog":
    os.write(fd, b"there was a " + animal + b"\r")
    wait_for(fd, "[a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+ ")
    os.write(fd, b"\x03")
    wait_for(fd, "\n> $")
    os.write(fd, b"/undo\r")
    wait_for(fd, "\n> $")
os.write(fd, "there was a té".encode())
wait_for(fd, "té")
os.write(fd, b"\x03")  # at the prompt it leaves the line
wait_for(fd, "\n> $")
code, seen = leave(pid, fd)
assert code == 0, (code, seen)
assert "tokens read" in seen, seen
history = os.path.join(folder, ".local/state/tgc/chat_history")
editor = os.path.exists(history)
if editor:
    assert "dog" in open(history).read()
    assert os.stat(history).st_mode & 0o077 == 0

# Ctrl-C at any moment, each of them at most one new prompt (two may meet one line); then one Ctrl-D
for _ in range(4):
    pid, fd = start([model])
    wait_for(fd, "> $")
    n = random.randrange(1, 6)
    for i in range(n):
        os.write(fd, b"\x03")
        time.sleep(random.choice([0, 0.003, 0.3]) * random.random())
    code, seen = leave(pid, fd)
    assert code == 0, (code, seen)
    assert not editor or len(re.findall("\n> ", seen)) <= n, (n, seen)

# Ctrl-D while an answer is written ends what comes after it
pid, fd = start([model, "-n", "200"])
wait_for(fd, "> $")
os.write(fd, b"there was a cat\r")
wait_for(fd, "[a-z]+ [a-z]+ [a-z]+ ")
os.write(fd, b"\x04")
code, seen = ended(pid, fd)
assert code == 0 and "tokens read" in seen, (code, seen)

# whatever ends it, the terminal is as it was
for number, prompt in (signal.SIGTERM, False), (signal.SIGHUP, True), (signal.SIGTERM, True):
    pid, fd = start([model, "--ignore-eos"])
    wait_for(fd, "> $")
    if not prompt:
        os.write(fd, b"there was a cat\r")
        wait_for(fd, "[a-z]+ [a-z]+ [a-z]+ ")
    assert not editor or not is_as_before(fd)
    os.kill(pid, number)
    code, seen = ended(pid, fd)
    assert code == 128 + number and is_as_before(fd), (number, prompt, code, seen)

# Ctrl-Z, with a process in front that goes on with it as a shell does
pid, fd = pty.fork()
if not pid:
    job = os.fork()
    if not job:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        execute([model])
    stopped = os.WIFSTOPPED(os.waitpid(job, os.WUNTRACED)[1])
    print("stopped" if stopped and is_as_before(0) else "not stopped", flush=True)
    os.killpg(job, signal.SIGCONT)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
wait_for(fd, "> $")
os.write(fd, b"there was\x1a")
wait_for(fd, "[^t] *stopped\r\n.*> there was$" if editor else "stopped\r\n")
os.write(fd, b"\x15")
code, seen = leave(pid, fd)
assert code == 0, (code, seen)

# two models side by side
pid, fd = start([model, model, "-n", "30"], columns=120)
wait_for(fd, "> $")
os.write(fd, b"there was a cat\r")
seen = wait_for(fd, r"> $")
assert re.search(r"\w+.* \| \w+", seen), seen
code, seen = leave(pid, fd)
assert code == 0, (code, seen)
print("ok")
