-- student.lua: a Llama of two narrow layers with the teacher's vocabulary.

local llama = require "llama"
for key, value in pairs { vocab = 512, ctx = 512, n_layer = 2, n_embd = 32, n_head = 4,
                          n_kv_head = 2, n_ff = 64 } do
        llama.params[key] = value
end
return llama
