/* model_files.h: which files of models/ are models; the others are what models are made with.
 * For tests that see the runtime alone, too; test_describe compares it with `tgc help models`. */
#ifndef TGC_MODEL_FILES_H
#define TGC_MODEL_FILES_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline bool is_model_file(const char *path)
{
        static const char *const word[] = { "return decoder.file {", ".graph(p)",
                                            "graph = function(p)" };
        char line[400];
        bool is = false;
        FILE *f = strstr(path, "/decoder.lua") ? NULL : fopen(path, "r"); /* what makes them */
        while (f && !is && fgets(line, sizeof line, f))
                for (size_t i = 0; i < sizeof word / sizeof *word; i++)
                        is |= strstr(line, word[i]) != NULL;
        if (f)
                fclose(f);
        return is;
}

#endif
