/* state.c: state.safetensors of a training run: header, a NUL, data, with the length put before
 * it */
#include "../../runtime/util/line_reader.h"
#include "folder.h"
#include "../../cli/train/train.h"

FUZZ(state)
{
        size_t head;
        const uint8_t *p = part_of_bytes(&data, &n, &head);
        uint64_t length = head;
        uint8_t *file = malloc(8 + head + n);
        Err e;
        TrainState st = { 0 };

        HOLDS(file);
        memcpy(file, &length, 8);
        memcpy(file + 8, p, head);
        if (n)
                memcpy(file + 8 + head, data, n);
        folder_put("state.safetensors", file, 8 + head + n);
        free(file);
        const char *path = in_folder("state.safetensors");
        state_check(path, &e);
        if (!state_peek(path, &st, &e))
                HOLDS(st.step >= 0 && st.step <= INT32_MAX);
        char *train[] = { "x.lua", "--data", "x" }, *found;
        static Args parsed;
        if (!parsed.n_pos)
                HOLDS(!args_parse(&parsed, CMD_TRAIN, 3, train, &e));
        Args a = parsed;
        Train t = { .a = &a, .talk = { .quiet = true }, .args = a };
        settings_take(&t, path, length & 1, &e);
        settings_free(&t);
        if (!run_file(folder, "ckpt.safetensors", &found, &e))
                free(found);
}
