#!/bin/sh
# demo.sh TGC: compile the example model and generate text; on the GPU as well when there is one.
set -e
tgc=$1
plan=$(dirname "$tgc")/shakespeare.plan
echo "+ tgc compile examples/shakespeare -o $plan"
"$tgc" compile examples/shakespeare -o "$plan"
echo "+ tgc run $plan -p 'ROMEO:' -n 240 --device cpu"
"$tgc" run "$plan" -p 'ROMEO:' -n 240 -s 1 --device cpu
if "$tgc" doctor 2>/dev/null | grep -q '^GPU *ok'; then
        echo "+ tgc run $plan -p 'ROMEO:' -n 240 --device cuda"
        "$tgc" run "$plan" -p 'ROMEO:' -n 240 -s 1 --device cuda
fi
