"""Writes runtime/chat/jinja_case.h: characters whose case is several, from Python's own tables.

    python3 tests/chat/make_case.py > runtime/chat/jinja_case.h
"""
print("/* jinja_case.h: characters that become several, made by tests/chat/make_case.py.\n"
      " * ROW(code point, lower, upper, title); 0: one character, or itself */")


def text(c, way):
    s = way(chr(c))
    return "0" if len(s) < 2 else '"%s"' % "".join("\\x%02x" % b for b in s.encode())


rows = []
for c in range(0x110000):
    if 0xD800 <= c < 0xE000:
        continue
    t = [text(c, w) for w in (str.lower, str.upper, str.title)]
    if t != ["0"] * 3:
        rows.append("ROW(0x%04x, %s)," % (c, ", ".join(t)))
print("\n".join(rows))
