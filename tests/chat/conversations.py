"""The suite of conversations that every template renders."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a \"city\" <now> & later",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "e.g. Zürich"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": ["integer", "null"], "minimum": 1}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "number"}, "b": {"type": "number"},
            "list": {"type": "array", "items": {"type": "string"}}},
            "required": ["a", "b"]},
        "return": {"type": "number", "description": "sum"}}},
]

CALL = {"id": "call12345", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "x": 1.5,
                                                          "flag": True, "none": None}}}
CALL_TEXT = {"id": "call98765", "type": "function",
             "function": {"name": "add", "arguments": "{\"a\": 1, \"b\": 2}"}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


USER = say("user", "What is 2 + 2?")
ANSWER = say("assistant", "4")
MORE = say("user", "  And <b>3</b> & 3?\n")

CONVERSATIONS = {
    "user": [USER],
    "pair": [USER, ANSWER],
    "system": [say("system", "You are terse."), USER],
    "developer": [say("developer", "You are terse."), USER],
    "turns": [USER, ANSWER, MORE],
    "system_turns": [say("system", "Be kind."), USER, ANSWER, MORE, say("assistant", "6")],
    "unicode": [say("user", "Grüße, 日本語 🙂 \u200b\u00a0 end\u2028")],
    "spaces": [say("user", "\n\n  lead\ttail  \n"), say("assistant", " x \n"), say("user", "")],
    "empty": [say("user", ""), say("assistant", ""), say("user", "again")],
    "none": [],
    "null_content": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                     say("tool", "sunny", name="get_weather", tool_call_id="call12345")],
    "two_users": [USER, MORE],
    "assistant_first": [ANSWER, USER],
    "unknown_role": [say("critic", "hm"), USER],
    "late_system": [USER, say("system", "late"), MORE],
    "parts": [say("user", [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])],
    "image": [say("user", [{"type": "image"}, {"type": "text", "text": "what is this?"}]),
              say("assistant", [{"type": "text", "text": "a cat"}]), USER],
    "system_parts": [say("system", [{"type": "text", "text": "Be kind."}]), USER],
    "thinking": [USER, say("assistant", "4", reasoning_content="2 and 2 is 4"), MORE],
    "thinking_key": [USER, say("assistant", "4", thinking="2 and 2 is 4"), MORE],
    "thinking_text": [USER, say("assistant", "<think>\nhm\n</think>\n\n4"), MORE,
                      say("assistant", "<think>\nhm 2\n</think>\n\n6"), USER],
    "calls": {"messages": [say("system", "Use tools."), say("user", "Weather?"),
                           {"role": "assistant", "tool_calls": [CALL]},
                           say("tool", "{\"t\": 21.5}", name="get_weather",
                               tool_call_id="call12345"),
                           say("assistant", "21.5 degrees"), MORE], "tools": TOOLS},
    "two_calls": {"messages": [say("user", "Both?"),
                               say("assistant", "Let me see.", tool_calls=[CALL, CALL_TEXT]),
                               say("tool", "sunny", name="get_weather", tool_call_id="call12345"),
                               say("tool", {"sum": 3}, name="add", tool_call_id="call98765"),
                               say("assistant", "done")], "tools": TOOLS},
    "tools_only": {"messages": [USER], "tools": TOOLS},
    "no_tools": {"messages": [say("system", "s"), USER], "tools": []},
    "thinking_calls": {"messages": [say("user", "Weather?"),
                                    say("assistant", "", reasoning_content="look it up",
                                        tool_calls=[CALL]),
                                    say("tool", "sunny", tool_call_id="call12345")],
                       "tools": TOOLS[:1]},
    "documents": {"messages": [USER], "documents": [{"title": "T", "text": "Text of it."}]},
    "named": [say("user", "hi", name="Ann"), say("assistant", "hello", name="Bob")],
    "no_role": [{"content": "hi"}],
    "numbers": [say("user", 5), say("assistant", 1.5), say("user", True)],
}

# With these variables.
VARS = [
    {},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"reasoning_effort": "high", "date_string": "01 Jan 2025", "thinking": True,
     "model_identity": "You are Bo.", "keep_past_thinking": True},
]

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def cases(template):
    """Every case of one template."""
    for name, c in CONVERSATIONS.items():
        for k, v in enumerate(VARS):
            for prompt in (False, True):
                yield {"name": "%s/%d/%d" % (name, k, prompt), "template": template,
                       "conversation": c, "vars": v, "tokens": TOKENS, "prompt": prompt}
