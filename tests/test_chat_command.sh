#!/bin/bash
# test_chat_command.sh: conversations on the command line: `run --messages`, `tokenize --messages`,
# `chat`.
. "$(dirname "$0")/shell.sh"
story=$(readlink -f tests/data/models/story)
start chat
run=(--device cpu --temp 0)
cp -r "$story" m && cd m && rm -f ./*.bin && cd .. || exit 1
cat > m/chat_template.jinja << 'END'
{% for m in messages %}{% if m.role == 'user' %}Once {{ m.content }}. {% elif
m.role in ['assistant', 'system'] %}{{ m.content }}{% else %}
{{ raise_exception('no role ' + m.role) }}{% endif %}{% endfor %}{% if
shout is defined and shout %}AH{% endif %}
END
echo '[{"role": "user", "content": "there was a cat"}]' > talk.json
echo '[{"role": "critic", "content": "hm"}]' > critic.json
echo '{"messages": 5}' > wrong.json
echo '[{"role": "user", "content": "there was a cat"}' > cut.json
"$TGC" run m "${run[@]}" -p x -n 1 > out 2> err || { grep -q 'no C compiler' err &&
        { echo "skip chat: no C compiler"; exit 0; }; }

tgc 0 '' compile m -q -o m.plan > why
"$TGC" tokenize m --messages talk.json > a && "$TGC" tokenize m.plan --messages talk.json > b
say text_of_folder_and_plan "$(cmp a b; printf 'Once there was a cat. ' | cmp a -)"
"$TGC" tokenize m.plan --messages talk.json --ids > a && printf 'Once there was a cat. ' |
        "$TGC" tokenize m --no-bos > b
say ids_without_bos "$(cmp a b)"
ids=$(tr ' ' , < a)
"$TGC" run m.plan "${run[@]}" -q --messages talk.json -n 20 --print-ids > a
"$TGC" run m.plan "${run[@]}" -q --prompt-ids "$ids" -n 20 --print-ids > b
say answers_what_is_rendered "$(cmp a b)"
"$TGC" run m.plan "${run[@]}" -q --rebuild --messages talk.json -n 20 --print-ids > a
say rebuilt_too "$(cmp a b)"
{ printf '\xef\xbb\xbf'; cat talk.json; } > mark.json
"$TGC" tokenize m.plan --messages mark.json > a
say a_mark_before_messages "$(printf 'Once there was a cat. ' | cmp a -)"
"$TGC" tokenize m.plan --messages - --system Be. < talk.json > a
say system_is_in_front "$(printf 'Be.Once there was a cat. ' | cmp a -)"
"$TGC" tokenize m.plan --messages talk.json --chat-template-kwargs '{"shout": true}' > a
say variables "$(printf 'Once there was a cat. AH' | cmp a -)"
printf '{{ messages[0].role }}' > role.jinja
"$TGC" tokenize m.plan --messages talk.json --template role.jinja > a
say template_of_a_file "$(printf user | cmp a -)"

why='m.plan: chat template:3:[0-9]+: error: the template refuses this conversation: no role critic'
say unknown_role "$(tgc 3 "$why" run m.plan --messages critic.json)"
say no_messages "$(tgc 3 'wrong.json' run m.plan --messages wrong.json)"
say no_json "$(tgc 3 'cut.json' tokenize m.plan --messages cut.json)"
say no_file "$(tgc 8 'nothing.json' run m.plan --messages nothing.json)"
say one_prompt "$(tgc 2 'one of --messages' run m.plan --messages talk.json -p x)"
say bad_variables "$(tgc 2 'chat-template-kwargs' run m.plan --messages talk.json \
        --chat-template-kwargs '[1]')"
echo '{"messages": [{"role": "user", "content": "a"}], "temperature": 1}' > body.json
why='body.json:1:50: unknown key "temperature" in a conversation; known: messages tools documents'
say unknown_key "$(tgc 3 "$why" run m.plan --messages body.json)"
printf '{%% if %%}' > bad.jinja
say bad_template "$(tgc 3 'bad.jinja:1:[0-9]+: error' run m.plan --messages talk.json \
        --template bad.jinja)"
rm m/chat_template.jinja
say no_template "$(tgc 2 'm has no chat template.*--template FILE' chat m)"
say no_template_run "$(tgc 2 'has no chat template' run m --messages talk.json)"
say no_tokenizer "$(tiny_model tiny.lua; tgc 2 'no tokenizer' chat tiny.lua --template role.jinja)"
say three_models "$(tgc 2 'chat' chat m.plan m.plan m.plan)"

# A conversation line by line, with what the cache keeps; the same one answered from its file.
printf '%s\n' 'there was a cat' 'there was a dog' /undo /nope '"""' many 'lines"""' 'a\' b /regen \
        '/save saved.json' /exit never |
        "$TGC" chat m.plan "${run[@]}" -n 12 -v --log log.md > out 2> err ||
                say chat_ends "$(cat err)"
say kept "$(grep -Eq 'prompt [0-9]+ tokens, [1-9][0-9]* of them kept' err || cat err)"
say no_command "$(grep -q '/nope is no command' err || cat err)"
say rates "$(tail -1 err | grep -Eq 'm.plan: .*, [0-9]+ tokens read at [0-9.]+ tok/s, 60 said' ||
        tail -1 err)"
say log "$(grep -q '^## You' log.md && grep -q '^many$' log.md && grep -q '^lines$' log.md &&
        ! grep -q never log.md || cat log.md)"
last=$(tail -1 out)
python3 - "$last" << 'END' > why 2>&1 || say python "$(cat why)"
import json, sys
m = json.load(open("saved.json"))
assert [x["role"] for x in m] == ["user", "assistant"] * 3, m
assert m[2]["content"] == "many\nlines" and m[4]["content"] == "a\nb", m
assert m[5]["content"].split("\n")[-1] == sys.argv[1], (m[5], sys.argv[1])
json.dump(m[:5], open("again.json", "w"))
END
"$TGC" run m.plan "${run[@]}" -q --messages again.json -n 12 > a
say from_its_file "$(echo "$last" | cmp a -)"
say refused_turn_ends_without_a_terminal "$(tgc 3 'no role critic' chat m.plan "${run[@]}" \
        --messages critic.json -p hello)"
printf '%s\n' 'there was a cat' | "$TGC" chat m.plan m.plan "${run[@]}" -q -n 8 > out 2> err
say two_models "$(test "$(grep -c '^==> m.plan <==' out)" = 2 && test "$(grep -v '^==>' out |
        sort -u | grep -c .)" = 1 || cat out err)"
say too_long "$(tgc 2 'tokens, the context of m.plan is' chat m.plan "${run[@]}" -p "$(printf \
        'cat %.0s' $(seq 900))")"

# On a terminal.
printf '{%% for m in messages %%}Once {{ m.content }}. {%% endfor %%}' > once.jinja
if command -v python3 > /dev/null; then
        "$TGC" compile m -q -c 60000 -o long.plan && mkdir home plain &&
                echo 'edit off' > plain/.editrc
        for home in home plain; do      # with libedit, where that is; without
                say "terminal_$home" "$(LIMIT=120 try 0 '' python3 "$top/tests/chat/terminal.py" \
                        "$TGC" long.plan once.jinja $home; tail -c 300 out | grep -v '^ok$')"
        done
fi
exit $failed
