-- families.lua: which file here describes which checkpoint.  Keys are config.json's
-- model_type and architectures, and llama2c for llama2.c's .bin files; a file's
-- `config` function makes its parameters of the configuration.
return {
        gpt2 = "gpt", GPT2LMHeadModel = "gpt",
        llama = "llama", LlamaForCausalLM = "llama",
        mistral = "llama", MistralForCausalLM = "llama",
        qwen2 = "llama", Qwen2ForCausalLM = "llama",
        qwen3 = "llama", Qwen3ForCausalLM = "llama",
        phi3 = "llama", Phi3ForCausalLM = "llama",
        llama2c = "llama",
        gemma2 = "gemma2", Gemma2ForCausalLM = "gemma2",
        gpt_neox = "gpt_neox", GPTNeoXForCausalLM = "gpt_neox",
        falcon = "falcon", FalconForCausalLM = "falcon",
        mpt = "mpt", MptForCausalLM = "mpt", MPTForCausalLM = "mpt",
        mixtral = "moe", MixtralForCausalLM = "moe",
        qwen3_moe = "moe", Qwen3MoeForCausalLM = "moe",
}
