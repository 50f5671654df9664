/* model_files.h: which files of models/ are models; the others are what models are made with. */
#ifndef TGC_MODEL_FILES_H
#define TGC_MODEL_FILES_H

#include <stdbool.h>
#include <string.h>

static inline bool is_model_file(const char *path)
{
        static const char *const other[] = { "blocks.lua",    "config.lua",     "config_keys.lua",
                                             "decoder.lua",   "families.lua",   "gguf.lua",
                                             "gguf_gpt.lua",  "gguf_llama.lua", "gguf_rules.lua",
                                             "gguf_write.lua" };
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        for (size_t i = 0; i < sizeof other / sizeof *other; i++)
                if (!strcmp(name, other[i]))
                        return false;
        return true;
}

#endif
