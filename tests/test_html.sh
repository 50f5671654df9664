#!/bin/bash
# test_html.sh: `tgc dump --html` and `tgc plot`: what stands in them, hostile texts, the same bytes
# twice; and, where chromium is, what a click lights up.
. "$(dirname "$0")/shell.sh"
LIMIT=100
start html

small="-D n_layer=2 -D n_embd=16 -D n_head=2 -D vocab=32 -D ctx=16 -b 2"

# ---- pages

cp "$top/models/gpt.lua" gpt.lua
p=$(try 0 "" "$TGC" dump gpt.lua $small --html a.html)
p=$p$(try 0 "" "$TGC" dump gpt.lua $small --html b.html)
cmp -s a.html b.html || p="$p two pages of one model differ"
say "the same page twice" "$p"

p=
grep -Eiq '(src|href)=|url\(|@import|https?://[^w]' a.html && p="it names something outside"
grep -q "Content-Security-Policy\" content=\"default-src 'none'" a.html || p="$p; no policy"
[ "$(grep -c '</script>' a.html)" = 2 ] || p="$p; $(grep -c '</script>' a.html) ends of scripts"
say "a page asks no network" "$p"

if command -v python3 > /dev/null; then
        cat > look.py <<'END'
import html.parser, json, sys
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(); self.ids = set(); self.tags = []; self.data = ''; self.inside = False
    def handle_starttag(self, tag, attrs):
        a = dict(attrs); self.tags.append(tag); self.ids.add(a.get('id'))
        self.inside = a.get('id') == 'data'
    def handle_endtag(self, tag): self.inside = False
    def handle_data(self, d):
        if self.inside: self.data += d
page = Page(); page.feed(open(sys.argv[1], encoding='utf-8').read())
assert {'top', 'strip', 'source', 'view', 'wires', 'search', 'data'} <= page.ids, page.ids
assert page.tags.count('script') == 2 and 'img' not in page.tags, page.tags
plans = json.loads(page.data)
p = plans[-1]
for t in p['targets']:
    for k in t['kernels']:
        assert k['text'].count(k['name']) and '//@' not in k['text'], k['name']
    for q in t['programs']:
        graph = next((g for g in p['graphs'] if g['name'] == q['name']), None)
        groups = {n[4] for n in graph['nodes']} if graph else {0}
        assert q['launches']
        for l in q['launches']:
            assert l['pieces'] and l['kernel'] < len(t['kernels']), l
            for piece in l['pieces']:
                assert piece['group'] in groups | {0} and piece['buffers'], (q['name'], piece)
names = {n[0] for g in p['graphs'] for n in g['nodes']} | {'scratch'}
for m in p['memory']:
    assert all(b[4] in names and b[0] + b[1] <= m['bytes'] for b in m['buffers']), m['program']
print(len(plans), [f['name'] for f in p['files'] if 'text' in f], 'measured' in p, p['model'])
END
        python3 look.py a.html > said 2>&1
        p=$(grep -q "^1 \['gpt.lua', 'blocks.lua'\] False gpt" said || tail -3 said)
        say "what a page holds" "$p"

        "$TGC" compile gpt.lua $small -q -o a.plan && "$TGC" compile gpt.lua $small -q -O1 -o b.plan
        p=$(try 0 "" "$TGC" dump a.plan b.plan --html c.html)
        python3 look.py c.html > said 2>&1
        say "two plans" "$p$(grep -q "^2 \['gpt.lua', 'blocks.lua'\] False" said || tail -3 said)"

        # launches of a target that the plan has no program of (--target of the other one)
        p=
        for target in cuda cpu; do
                TGC_CFLAGS=-O0 "$TGC" compile gpt.lua $small --mode infer --target $target -q \
                        -o $target.plan 2> err || { echo "skip pages of $target"; continue; }
                p=$p$(try 0 "" "$TGC" dump $target.plan --html $target.html)
                python3 look.py $target.html > said 2>&1 || p="$p; $(tail -1 said)"
                grep -q "\"targets\":\[{\"name\":\"$target\"" $target.html ||
                        p="$p; $target.html is not of $target"
        done
        say "a plan of one target" "$p"

        # a model whose file and comments are markup
        evil='x<img src=q onerror=alert(1)>.lua'
        bad='</script><script>document.title=1</script><img src=q onerror=alert(2)> <!-- \&amp; '
        sed "1s|.*|-- $bad|" gpt.lua > "$evil"
        p=$(try 0 "" "$TGC" dump "$evil" $small --html d.html)
        python3 look.py d.html > said 2>&1
        p=$p$(grep -q "^1 " said || tail -3 said)
        say "a hostile model is text" "$p$(grep -c 'onerror=alert(2)>' d.html | grep -v '^0')"
else
        echo "skip what a page holds: there is no python3"
fi

p=$(try 2 "wo PLANs need --html" "$TGC" dump gpt.lua gpt.lua --fused)
p=$p$(try 2 "goes with --html" "$TGC" dump gpt.lua $small --fused --measured)
p=$p$(try 2 "is the file that dump reads" "$TGC" dump gpt.lua $small --html gpt.lua)
say "errors of dump" "$p"
p=$(try 4 "no CUDA|no GPU|driver" env CUDA_VISIBLE_DEVICES= "$TGC" dump gpt.lua $small \
        --html e.html --measured --device cuda)
[ -e e.html ] && p="$p; e.html was written"
[ -e /dev/nvidia0 ] && echo "skip no device: there is one" || say "no device" "$p"
p=$(try 2 "emulator's times" "$TGC" dump gpt.lua $small --html e.html --measured --device emulate)
say "the emulator is not measured" "$p"

# ---- curves

printf '%s\n' step,lr,loss,aux_loss,grad_norm,val_loss 0,1e-4,4.5,0,1,4.6 1,2e-4,4.25,0,nan, \
        2,3e-4,4,0,0.5,4.1 > run.csv
printf '%s\n' iter,train/loss,val/loss,lr,dt,tokens_per_s 0,4,4,1e-3,12.5,3000 \
        10,3,3.5,1e-3,12,3100 > '<b>&.csv'
p=$(try 0 "" "$TGC" plot run.csv '<b>&.csv' -o a.svg)
p=$p$(try 0 "" "$TGC" plot run.csv '<b>&.csv' -o b.svg)
cmp -s a.svg b.svg || p="$p; two pictures differ"
grep -q '&#60;b&#62;&#38;.csv' a.svg && ! grep -q '<b>' a.svg || p="$p; a name is markup"
for panel in loss 'learning rate' 'gradient norm' throughput 'time of a step'; do
        grep -q "class=\"title\".*>$panel" a.svg || p="$p; no panel $panel"
done
grep -q 'prefers-color-scheme: dark' a.svg || p="$p; light alone"
command -v python3 > /dev/null &&
        ! python3 -c 'import sys, xml.dom.minidom as x; x.parse("a.svg")' 2> /dev/null &&
        p="$p; no XML"
say "curves of two runs" "$p"
p=$(try 0 "" "$TGC" plot run.csv --log -o l.svg)
grep -q logarithmic l.svg || p="${p}not logarithmic"
mkdir run && cp run.csv run/log.csv
p=$p$(try 0 "" "$TGC" plot run -o r.svg)
say "--log, and a folder" "$p"

# A log that is being written ends within a row; editors of Windows put a mark in front.
torn() {
        local end
        printf 'step,lr,loss\n0,1e-3,4\n1,1e-3,3\n' > whole.csv
        "$TGC" plot whole.csv -o whole.svg
        for end in 2,1e 2,1e-3 2,1e-3,-; do
                { printf '\xef\xbb\xbf'; cat whole.csv; printf '%s' "$end"; } > torn.csv
                try 0 'torn.csv:4: the line ends too early' "$TGC" plot torn.csv -o torn.svg
                sed 's/torn.csv/whole.csv/' torn.svg | cmp - whole.svg
        done
}
say "a torn last line" "$(torn 2>&1)"
ticks() {       # ticks TEXT: what stands at them, and no coordinate that is no number
        printf "$1" > ticks.csv
        try 0 '' "$TGC" plot ticks.csv -o ticks.svg
        grep -Ei '[M" L-](nan|inf)' ticks.svg
        grep -o '"tick [a-z]*"[^<]*' ticks.svg | sed 's/.*>//' | tr '\n' ' '
}
numbers() {
        # whole steps; neighbours are told apart; what is beyond a picture is not in it
        ticks 'step,loss\n0,4.174301\n1,4.174303\n' > said
        grep -qx '4.174301 .*4.174303 0 1 step ' said || cat said
        ticks 'step,loss\n7,123456.1\n7,123456.2\n' > said
        grep -qx '123.4561k .* 123.4562k 6 7 8 step ' said || cat said
        ticks 'step,loss\n0,1e308\n1,-1e308\n2,2\n' > said
        grep -q ' 2 .* 1 2 3 step ' said || cat said
        ticks 'step,loss\n0,1e17\n1,100000000000000016\n' > said
        grep -q '0 1 step ' said || cat said
}
say "numbers at the axes" "$(numbers 2>&1)"

bad() {         # bad WORDS TEXT [OPTION]: plot says WORDS of a file of that text
        printf "$2" > bad.csv
        try "$3" "$1" "$TGC" plot bad.csv -o x.svg ${4-}
}
p=$(bad "bad.csv:3: 'abc' is not a number" 'step,loss\n1,2\n2,abc\n' 3)
p=$p$(bad 'bad.csv:2: 3 cells' 'step,loss\n1,2,3\n' 3)
p=$p$(bad 'bad.csv:1: no column of steps' 'a,loss\n1,2\n' 3)
p=$p$(bad 'bad.csv:1: nothing to plot' 'step,b\n1,2\n' 3)
p=$p$(bad 'no rows' 'step,loss\n' 3)
p=$p$(bad 'bad.csv:2: loss is 0' 'step,loss\n1,0\n' 3 --log)
p=$p$(bad "bad.csv:3: no step: '1e17'" 'step,loss\n1,2\n1e17,2\n' 3)
p=$p$(bad 'has no effect: no run has a loss' 'step,lr\n1,2\n' 2 --log)
p=$p$(try 2 "FILE.svg is missing" "$TGC" plot run.csv)
p=$p$(try 2 "x.png: plot writes SVG" "$TGC" plot run.csv -o x.png)
p=$p$(try 2 "is the file that plot reads" "$TGC" plot run.csv -o run.csv)
[ -e x.svg ] && p="$p; x.svg was written"
say "errors of plot" "$p"

# A time of every launch, measured on the CPU.
p=
if "$TGC" compile gpt.lua $small --target cpu -q -o x.plan 2> err; then
        export TGC_CFLAGS=${TGC_CFLAGS--O0 -DTGC_CALLS}
        p=$(try 0 "" "$TGC" dump gpt.lua $small --html m.html --measured --device cpu)
        [ "$p" ] || ! command -v python3 > /dev/null ||
                python3 - > said 2>&1 << 'END' || p=$(tail -1 said)
import re, json
page = open('m.html', encoding='utf-8').read()
data = re.search(r'<script[^>]*id="?data"?[^>]*>(.*?)</script>', page, re.S)[1]
m = json.loads(data)[0]['measured']
assert {'decode', 'prefill'} <= {q['program'] for q in m['programs']}, m
assert all(t > 0 for q in m['programs'] for t in q['ms']), m
END
        say "every launch has a time" "$p"
fi

# ---- in a browser

chrome=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$chrome" ]; then
        echo "skip clicks: there is no chromium"
        exit $failed
fi

# browse PAGE SCRIPT: what the script leaves in the element `said`
browse() {
        { cat "$1"; echo "<pre id=said></pre><script>try { $2 } catch (e) { tell('error ' + e) }
          function tell(s) { document.getElementById('said').append(s + ' ') }</script>"
        } > page.html
        timeout 60 "$chrome" --headless --no-sandbox --disable-gpu \
                --user-data-dir="$dir/chrome" --virtual-time-budget=2000 --window-size=1400,900 \
                --dump-dom "file://$dir/page.html" 2> /dev/null > dom
        sed -n 's/.*<pre id="said">\(.*\)<\/pre>.*/\1/p' dom
}
want() {        # want NAME WORDS GOT
        [[ $3 == $2 ]] && say "$1" "" || say "$1" "'$3', not '$2'"
}
names="[...document.querySelectorAll('.kernel.on .name')].map(x => x.textContent.split(' ')[0])"
line=$(grep -n 'b.attend' gpt.lua | head -1 | cut -d: -f1)

got=$(browse a.html "document.querySelector('[data-at=\"gpt.lua:$line\"]').click();
        const k = $names; tell(k.length > 1 && k.every(x => x.includes('attention')));
        setTimeout(() => tell(document.querySelectorAll('.wire').length), 300);")
want "a line lights up its kernels" "true [1-9]* " "$got"
got=$(browse a.html "const k = [...document.querySelectorAll('.kernel')]
                .find(x => /attention/.test(x.textContent));
        k.querySelector('.row').click();
        tell([...document.querySelectorAll('.line.on')].map(x => x.dataset.at).join());
        tell(k.querySelectorAll('.buffers tr').length > 2 && /__global__/.test(k.textContent));
        tell(document.querySelectorAll('.cell.on').length);
        k.querySelector('[data-text=other]').click();
        tell(/void \\*const \\*arg/.test(k.querySelector('.code').textContent));")
want "a kernel lights up its lines" "gpt.lua:$line true 2 true " "$got"
key="const key = k => document.body.dispatchEvent(new KeyboardEvent('keydown',
        { key: k, bubbles: true }));"
got=$(browse a.html "$key key('j'); key('j'); tell($names.join());
        key('Enter'); tell(document.querySelectorAll('.detail').length);
        key('k'); tell($names.join()); key('Escape'); tell($names.length);
        key('2'); tell(document.querySelectorAll('#memory .buf').length > 5);
        document.querySelector('#memory .buf')
                .dispatchEvent(new MouseEvent('click', { bubbles: true }));
        tell(document.querySelectorAll('.buf.on').length > 0);
        key('t'); key('p'); tell(now.target + ',' + now.program);")
want "keys" "k1_* 1 k0_* 0 true true 1,1 " "$got"
got=$(browse a.html "$key key('/'); const s = document.getElementById('search');
        s.value = 'gelu'; s.dispatchEvent(new Event('input'));
        const rows = [...document.querySelectorAll('.kernel')];
        tell(rows.length > 0 && rows.every(x =>
                haystack(target(), program(), +x.dataset.kernel).includes('gelu')));")
want "search" "true " "$got"
for page in a c m; do
        [ -e $page.html ] || continue
        got=$(browse $page.html "const l = document.querySelector('.line');
                const r = l.getBoundingClientRect(); tell(l.dataset.at); tell(scrollY);
                tell(document.getElementById('source').scrollTop);
                tell(r.top > 0 && r.bottom < 900);")
        want "$page.html opens at line 1" "gpt.lua:1 0 0 true " "$got"
done
if [ -e c.html ]; then
        got=$(browse c.html "tell(document.querySelectorAll('.change').length > 0);
                const s = document.querySelector('.change.changed summary'); s && s.click();
                setTimeout(() => tell(document.querySelectorAll('.change .ins').length > 0), 300);")
        want "what changed" "true true " "$got"
        got=$(browse d.html "tell(document.title.includes('onerror'));
                tell(document.images.length); tell(document.scripts.length);")
        want "a hostile model stays text" "true 0 3 " "$got"
fi
"$TGC" dump gpt.lua -D n_layer=32 -D n_embd=64 -D n_head=2 -D vocab=64 -D ctx=32 -O0 \
        --html big.html
got=$(browse big.html "const t = performance.now(); draw();
        document.querySelector('[data-at=\"gpt.lua:$line\"]').click(); document.body.offsetHeight;
        tell(performance.now() - t < 1000 ? 'fast' : performance.now() - t);
        tell(program().launches.length > 400);")
want "32 layers without delay" "fast true " "$got"
exit $failed
