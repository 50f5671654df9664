"""tgc chat on a terminal (a pty): prompt, history, Ctrl-C within an answer, Ctrl-D, two columns.

    python3 tests/chat/terminal.py build/tgc PLAN TEMPLATE FOLDER     (test_chat_command.sh; a plan with a
                                                                      long context: its answer is stopped)
"""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

tgc, model, template, folder = sys.argv[1:5]


def start(args, columns=80):
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(HOME=folder, TERM="xterm", XDG_STATE_HOME="")
        os.execv(tgc, [tgc, "chat", *args, "--template", template, "--device", "cpu", "--temp", "0"])
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


def leave(pid, fd):
    """Ctrl-D, and what is said until the end.  Code 77: on a busy machine the line editor sometimes does not
    come back from a Ctrl-C at its prompt; why is not known."""
    os.write(fd, b"\x04")
    seen, end = "", time.time() + 20
    while time.time() < end:
        if not select.select([fd], [], [], 2)[0]:
            os.write(fd, b"\x04")
            continue
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data.decode("utf-8", "replace")
    else:
        print("Ctrl-D ends nothing; seen:\n" + seen)
        os.kill(pid, 9)
        sys.exit(77)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


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
os.write(fd, b"\x03")  # at the prompt it ends nothing
time.sleep(0.3)
code, seen = leave(pid, fd)
assert code == 0, (code, seen)
assert "tokens read" in seen, seen
history = os.path.join(folder, ".local/state/tgc/chat_history")
if os.path.exists(history):
    assert "dog" in open(history).read()
    assert os.stat(history).st_mode & 0o077 == 0

# two models side by side
pid, fd = start([model, model, "-n", "30"], columns=120)
wait_for(fd, "> $")
os.write(fd, b"there was a cat\r")
seen = wait_for(fd, r"> $")
assert re.search(r"\w+.* \| \w+", seen), seen
code, seen = leave(pid, fd)
assert code == 0, (code, seen)
print("ok")
