-- quant_keys.lua: which keys quantization_config may have, by its quant_method.  Weights are
-- decoded when they are imported (runtime/weights/quant_folder.h); what the layers' tensors say by
-- themselves is not asked here.  Activations and caches are not quantised.
local config = require "config"
local free, null, only, maybe, object = config.free, config.null, config.only, config.maybe,
        config.object

local function none(...)
        local out = {}
        for _, key in ipairs { ... } do out[key] = free end
        return out
end
local function set(a, b) return config.with(b, a) end

local weights = set({
        num_bits = only(1, 2, 3, 4, 5, 6, 7, 8), type = only("int", "float"),
        dynamic = only(false, null),
        strategy = only("tensor", "channel", "group", "block", "tensor_group", null),
        group_size = maybe "scalar", block_structure = maybe "list",
}, none("symmetric", "actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"))

local formats = only("pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                     "nvfp4-pack-quantized",
                     "mxfp4-pack-quantized", "mixed-precision", "dense", null)

return config.kinds("quant_method", {
        bitsandbytes = none("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit",
                            "bnb_4bit_quant_type",
                            "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype",
                            "bnb_4bit_quant_storage", "llm_int8_skip_modules", "llm_int8_threshold",
                            "llm_int8_enable_fp32_cpu_offload",
                            "llm_int8_has_fp16_weight", "modules_to_not_convert"),
        gptq = set({
                bits = only(2, 3, 4, 8), checkpoint_format = only("gptq", "gptq_v2", null),
                group_size = free, is_marlin_format = only(false), pack_dtype = only("int32", null),
                format = only("gptq", "gptq_v2", null), rotation = only(null),
        }, none("desc_act", "sym", "lm_head", "dynamic", "damp_percent", "damp_auto_increment",
                "static_groups", "act_group_aware",
                "true_sequential", "dataset", "tokenizer", "meta", "model_seqlen",
                "block_name_to_quantize", "module_name_preceding_first_block",
                "modules_in_block_to_quantize", "modules_to_not_convert", "batch_size",
                "pad_token_id", "use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config",
                "max_input_length", "cache_block_outputs", "backend", "model_file_base_name",
                "model_name_or_path", "mse", "hessian", "lib", "quantizer",
                "offload_to_disk", "failsafe", "gptaq")),
        awq = set({
                bits = only(4), w_bit = only(4), version = only("gemm", "GEMM"),
                zero_point = only(true), do_fuse = only(false, null),
        }, none("group_size", "q_group_size", "modules_to_not_convert", "backend",
                "fuse_max_seq_len", "modules_to_fuse",
                "exllama_config")),
        ["compressed-tensors"] = set({
                format = formats, sparsity_config = only({}, null),
                transform_config = only({}, null),
                config_groups = config.each(set({ weights = object(weights), format = formats },
                                                none("targets", "input_activations",
                                                     "output_activations"))),
        }, none("ignore", "kv_cache_scheme", "quantization_status", "global_compression_ratio",
                "version")),
        fp8 = set({
                fmt = only("e4m3", null), weight_block_size = maybe "list",
        }, none("activation_scheme", "modules_to_not_convert", "ignored_layers", "scale_fmt",
                "kv_cache_scheme", "dequantize")),
        mxfp4 = none("modules_to_not_convert", "dequantize"),
})
