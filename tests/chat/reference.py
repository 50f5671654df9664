"""jinja2 as transformers 5.24 sets it up for chat templates, and messages as it hands them on."""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1753876800  # 2025-07-30 12:00 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: rendered as it is; where it lies is noted."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_note")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _note(self, _context, caller):
        text = caller()
        begin = len("".join(self.environment.written))
        self.environment.spans.append((begin, begin + len(text)))
        return text


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def refuse_underscore(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(name)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            refuse_underscore(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        refuse_underscore(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW).strftime(format)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict(),
                       namespace=TemplateNamespace)
    return env


def prepare(messages):
    """Null members go; what was thought is there under each of its names."""
    out = []
    for m in messages:
        m = {k: v for k, v in m.items() if v is not None}
        said = next((m[k] for k in ("reasoning_content", "thinking", "reasoning") if k in m), None)
        if said is not None:
            m = {"thinking": said, **m, "reasoning_content": said}
        out.append(m)
    return out


ENV = environment()
_cache = {}


def render(case):
    """(text, spans in bytes), or raises."""
    text = case["template"]
    if text not in _cache:
        if len(_cache) > 500:
            _cache.clear()
        try:
            _cache[text] = ENV.from_string(text)
        except Exception as e:  # noqa: BLE001
            _cache[text] = e
    t = _cache[text]
    if isinstance(t, Exception):
        raise t
    c = case["conversation"]
    c = c if isinstance(c, dict) else {"messages": c}
    ENV.written, ENV.spans = [], []
    kwargs = {**case.get("tokens", {}), **case.get("vars", {})}
    for block in t.generate(messages=prepare(c["messages"]), tools=c.get("tools"),
                            documents=c.get("documents"),
                            add_generation_prompt=case.get("prompt", False), **kwargs):
        ENV.written.append(block)
    out = "".join(ENV.written)
    out.encode()  # half a surrogate pair is an error
    spans = [len(out[:k].encode()) for s in ENV.spans for k in s]
    return out, spans
